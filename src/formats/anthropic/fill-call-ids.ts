import type { JsonObject } from '../../core/json.ts'
import { freshId, idOf, replaceItems, replaceObject } from '../fresh-ids.ts'

/** A whole answer in which every tool call has an id; the same object where all had one. */
export function fillCallIds(message: JsonObject): JsonObject {
  return replaceItems(message, 'content', withId)
}

/** An event of a stream in which a tool call that begins has an id; the same object where it had one. */
export function fillCallIdOfEvent(event: JsonObject): JsonObject {
  return event['type'] === 'content_block_start' ? replaceObject(event, 'content_block', withId) : event
}

function withId(block: JsonObject): JsonObject {
  return block['type'] === 'tool_use' && idOf(block['id']) === undefined ? { ...block, id: freshId('toolu') } : block
}
