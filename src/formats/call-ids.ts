import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'

/**
 * Returns an id for a tool call that its upstream sent without one. It is random, not counted: the caller sends it back with
 * the result, and a conversation with two calls of the same id is refused by vendors.
 */
export function generateCallId(prefix: 'call' | 'toolu'): string {
  return `${prefix}_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`
}

/** The value when it is a string with at least one character. */
export function idOf(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** The object with another value in one field; the same object where nothing differs, so that it leaves as it came. */
function replaceField(object: JsonObject, field: string, value: Json | undefined): JsonObject {
  return object[field] === value ? object : { ...object, [field]: value }
}

/** The object with changed objects in the list that one of its fields holds; the same object where nothing differs. */
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

/** The object with a changed object in one of its fields; the same object where nothing differs. */
export function replaceObject(
  object: JsonObject,
  field: string,
  change: (inner: JsonObject) => JsonObject,
): JsonObject {
  const inner = object[field]
  return isJsonObject(inner) ? replaceField(object, field, change(inner)) : object
}

/** Returns an answer in which every tool call has an id; the same object when none was missing. */
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
 * Returns a function that gives an id to each tool call of a stream that begins without one. A call begins with its name, and
 * the pieces after that may come without an id. A piece without a number belongs to the call before it unless it has a name.
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
    // A second call under the same number: it begins with an id and a name of its own.
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

/** Returns an answer in which every tool call has an id; the same object when none was missing. */
export function fillMessageCallIds(message: JsonObject): JsonObject {
  return replaceItems(message, 'content', withMessageCallId)
}

/** Returns an event in which a starting tool call has an id; the same object when it has one. */
export function fillEventCallId(event: JsonObject): JsonObject {
  return event['type'] === 'content_block_start' ? replaceObject(event, 'content_block', withMessageCallId) : event
}

function withMessageCallId(block: JsonObject): JsonObject {
  return block['type'] === 'tool_use' && idOf(block['id']) === undefined
    ? { ...block, id: generateCallId('toolu') }
    : block
}

const CALLS: ReadonlySet<Json | undefined> = new Set(['function_call', 'custom_tool_call'])

/** Returns a response in which every tool call has a `call_id`; the same object when none was missing. */
export function fillResponseCallIds(response: JsonObject): JsonObject {
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
export function responseCallIdFiller(): (event: JsonObject) => JsonObject {
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
