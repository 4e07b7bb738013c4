import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'

/**
 * Returns an id for a tool call that the upstream sent without one. The id is random, because vendors refuse a conversation
 * with two calls of the same id.
 */
export function generateCallId(prefix: 'call' | 'toolu'): string {
  return `${prefix}_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`
}

/** Returns the value if it is a string of at least one character. */
export function idOf(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Replaces one field. Returns the same object when the value is equal, so that it is sent as received. */
function replaceField(object: JsonObject, field: string, value: Json | undefined): JsonObject {
  return object[field] === value ? object : { ...object, [field]: value }
}

/** Changes one field of the objects in a list. Returns the same object when none of them changes. */
export function replaceItems(
  object: JsonObject,
  field: string,
  change: (item: JsonObject, index: number) => JsonObject,
): JsonObject {
  const list: Json | undefined = object[field]
  if (!Array.isArray(list)) return object
  const before: readonly Json[] = list
  const after = before.map((item, index) => (isJsonObject(item) ? change(item, index) : item))
  return after.every((item, index) => item === before[index]) ? object : { ...object, [field]: after }
}

/** Changes one field of an object in the body. Returns the same body if the object does not change. */
export function replaceObject(
  object: JsonObject,
  field: string,
  change: (inner: JsonObject) => JsonObject,
): JsonObject {
  const inner = object[field]
  return isJsonObject(inner) ? replaceField(object, field, change(inner)) : object
}

/** Adds missing ids to the tool calls of an answer. Returns the same object when none is missing. */
export function fillChatCallIds(body: JsonObject): JsonObject {
  return replaceItems(body, 'choices', (choice) =>
    replaceObject(choice, 'message', (message) => replaceItems(message, 'tool_calls', withChatCallId)),
  )
}

function withChatCallId(call: JsonObject): JsonObject {
  return idOf(call['id']) === undefined ? { ...call, id: generateCallId('call') } : call
}

interface StreamedCall {
  hasOwnId: boolean
}

/**
 * Returns a function that adds ids to the tool calls of a stream. The first piece of a call has its name; later pieces may
 * have no id. A piece without an index belongs to the preceding call unless it has a name.
 */
export function chatCallIdFiller(): (chunk: JsonObject) => JsonObject {
  const calls = new Map<string, StreamedCall>()
  const fill = (piece: JsonObject, choice: Json | undefined): JsonObject => {
    const { index } = piece
    const id = idOf(piece['id'])
    if (typeof index !== 'number') return id === undefined && isNamed(piece) ? withChatCallId(piece) : piece
    const key = `${String(choice)}:${index}`
    const known = calls.get(key)
    if (known === undefined) {
      if (id === undefined && !isNamed(piece)) return piece
      calls.set(key, { hasOwnId: id !== undefined })
      return withChatCallId(piece)
    }
    if (id === undefined || known.hasOwnId) return piece
    if (!isNamed(piece)) return replaceField(piece, 'id', undefined)
    // A second call with the same index: its first piece has an id and a name.
    known.hasOwnId = true
    return piece
  }
  return (chunk) =>
    replaceItems(chunk, 'choices', (choice) =>
      replaceObject(choice, 'delta', (delta) =>
        replaceItems(delta, 'tool_calls', (piece) => fill(piece, choice['index'] ?? 0)),
      ),
    )
}

function isNamed(piece: JsonObject): boolean {
  const called = piece['function'] ?? piece['custom']
  return isJsonObject(called) && idOf(called['name']) !== undefined
}

/** Adds missing ids to the tool calls of an answer. Returns the same object when none is missing. */
export function fillMessageCallIds(message: JsonObject): JsonObject {
  return replaceItems(message, 'content', withMessageCallId)
}

/** Adds a missing id to the tool call that an event starts. Returns the same object when none is missing. */
export function fillEventCallId(event: JsonObject): JsonObject {
  return event['type'] === 'content_block_start' ? replaceObject(event, 'content_block', withMessageCallId) : event
}

function withMessageCallId(block: JsonObject): JsonObject {
  return block['type'] === 'tool_use' && idOf(block['id']) === undefined
    ? { ...block, id: generateCallId('toolu') }
    : block
}

const CALLS: ReadonlySet<Json | undefined> = new Set(['function_call', 'custom_tool_call'])

/** Adds missing `call_id`s to a response. Returns the same object when none is missing. */
export function fillResponseCallIds(response: JsonObject): JsonObject {
  return replaceItems(response, 'output', (item) => withId(item))
}

/** Sets a missing `call_id` to the unique id of the item. */
function withId(item: JsonObject, known?: string): JsonObject {
  if (!CALLS.has(item['type']) || idOf(item['call_id']) !== undefined) return item
  return { ...item, call_id: known ?? idOf(item['id']) ?? generateCallId('call') }
}

/**
 * Returns a function that adds a `call_id` to the tool calls of a stream. All events of one call get the same id. Calls are
 * identified by their index in the output.
 */
export function responseCallIdFiller(): (event: JsonObject) => JsonObject {
  const ids = new Map<Json | undefined, string>()
  const fill = (item: JsonObject, index: Json | undefined): JsonObject => {
    const filled = withId(item, ids.get(index))
    const id = idOf(filled['call_id'])
    if (id !== undefined) ids.set(index, id)
    return filled
  }
  return (event) => {
    const withItem = replaceObject(event, 'item', (item) => fill(item, event['output_index']))
    return replaceObject(withItem, 'response', (response) => replaceItems(response, 'output', fill))
  }
}
