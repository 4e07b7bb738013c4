import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import { freshId, idOf, replaceField, replaceItems, replaceObject } from '../fresh-ids.ts'

/** A whole answer in which every tool call has an id; the same object where all had one. */
export function fillCallIds(body: JsonObject): JsonObject {
  return replaceItems(body, 'choices', (choice) =>
    replaceObject(choice, 'message', (message) => replaceItems(message, 'tool_calls', withId)),
  )
}

function withId(call: JsonObject): JsonObject {
  return idOf(call['id']) === undefined ? { ...call, id: freshId('call') } : call
}

interface StreamedCall {
  hasOwnId: boolean
}

/**
 * Returns a function that gives an id to each tool call of a stream that begins without one. A call begins with its name, and
 * the pieces after that may come without an id. A piece without a number belongs to the call before it unless it has a name.
 */
export function callIdFiller(): (chunk: JsonObject) => JsonObject {
  const calls = new Map<string, StreamedCall>()
  const fill = (piece: JsonObject, choice: Json | undefined): JsonObject => {
    const { index } = piece
    const id = idOf(piece['id'])
    if (typeof index !== 'number') return id === undefined && isNamed(piece) ? withId(piece) : piece
    const key = `${String(choice)}:${index}`
    const known = calls.get(key)
    if (known === undefined) {
      if (id === undefined && !isNamed(piece)) return piece
      calls.set(key, { hasOwnId: id !== undefined })
      return withId(piece)
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
