import { isJsonObject, type Json, type JsonObject } from '../../../src/core/json.ts'

/**
 * Rules of the vendors for a shortened conversation, written from their documentation. Shares no code with the savings
 * tiers. Each function compares the received body with the sent one and returns the violations, none if it is valid.
 */
export type Violations = readonly string[]

export const textOf = (value: Json | undefined): string => JSON.stringify(value ?? null)
export const typeOf = (value: Json | undefined): string => (isJsonObject(value) ? String(value['type'] ?? '') : '')

export function objectsIn(value: Json | undefined): readonly JsonObject[] {
  return Array.isArray(value) ? (value as readonly Json[]).filter(isJsonObject) : []
}

/** The blocks of a message's content. A string is one text block. */
export function blocksIn(content: Json | undefined): readonly JsonObject[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : objectsIn(content)
}

/** All fields except the conversation, the model and the stream settings are sent as received. */
export function changedFields(before: JsonObject, after: JsonObject, conversation: string): Violations {
  const free = new Set([conversation, 'model', 'stream', 'stream_options'])
  const names = new Set([...Object.keys(before), ...Object.keys(after)])
  return [...names]
    .filter((name) => !free.has(name) && textOf(before[name]) !== textOf(after[name]))
    .map((name) => `the field ${name} is changed`)
}

/** An id names one element. */
export function repeatedIds(elements: readonly JsonObject[], field: string): Violations {
  const seen = new Set<Json>()
  return elements.flatMap(({ [field]: id }) => {
    if (typeof id !== 'string') return []
    const isRepeated = seen.has(id)
    seen.add(id)
    return isRepeated ? [`the ${field} ${id} is sent twice`] : []
  })
}

/** `values` must occur in `sent`, in this order. */
export function missingInOrder(values: readonly string[], sent: readonly string[], what: string): Violations {
  let from = 0
  for (const value of values) {
    const at = sent.indexOf(value, from)
    if (at === -1) return [`${what} is missing or moved: ${value.slice(0, 120)}`]
    from = at + 1
  }
  return []
}

/** Elements that were received must be sent in their old order. */
export function reordered(before: readonly string[], after: readonly string[]): Violations {
  let from = 0
  for (const value of after) {
    if (!before.includes(value)) continue
    const at = before.indexOf(value, from)
    if (at === -1) return [`an element is sent twice or out of order: ${value.slice(0, 120)}`]
    from = at + 1
  }
  return []
}

/**
 * Indexes of the elements that must stay because an element around them is unknown: from the user message before it to
 * the next one.
 */
export function indexesAroundUnknown(
  elements: readonly JsonObject[],
  isUnknown: (element: JsonObject) => boolean,
  isPlainUser: (element: JsonObject) => boolean,
): readonly number[] {
  const kept: number[] = []
  let turn: number[] = []
  let isKept = false
  const close = (): void => {
    if (isKept) kept.push(...turn)
    turn = []
    isKept = false
  }
  for (const [index, element] of elements.entries()) {
    if (isPlainUser(element) && !isUnknown(element)) close()
    else {
      turn.push(index)
      isKept ||= isUnknown(element)
    }
  }
  close()
  return kept
}
