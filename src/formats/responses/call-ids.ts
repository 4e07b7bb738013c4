import type { Json, JsonObject } from '../../core/json.ts'
import { generateCallId, idOf, replaceItems, replaceObject } from '../call-ids.ts'

const CALLS: ReadonlySet<Json | undefined> = new Set(['function_call', 'custom_tool_call'])

/** Returns a response in which every tool call has a `call_id`; the same object when none was missing. */
export function fillCallIds(response: JsonObject): JsonObject {
  return replaceItems(response, 'output', (item) => withId(item))
}

/** The id of the item, which is unique, replaces a missing `call_id`. */
function withId(item: JsonObject, known?: string): JsonObject {
  if (!CALLS.has(item['type']) || idOf(item['call_id']) !== undefined) return item
  return { ...item, call_id: known ?? idOf(item['id']) ?? generateCallId('call') }
}

/**
 * Returns a function that gives a `call_id` to each tool call of a stream that comes without one: the same in all events
 * that show the call, which are distinguished by the place of the call in the output.
 */
export function callIdFiller(): (event: JsonObject) => JsonObject {
  const ids = new Map<Json | undefined, string>()
  const fill = (item: JsonObject, place: Json | undefined): JsonObject => {
    const filled = withId(item, ids.get(place))
    const id = idOf(filled['call_id'])
    if (id !== undefined) ids.set(place, id)
    return filled
  }
  return (event) => {
    const withItem = replaceObject(event, 'item', (item) => fill(item, event['output_index']))
    return replaceObject(withItem, 'response', (response) => replaceItems(response, 'output', fill))
  }
}
