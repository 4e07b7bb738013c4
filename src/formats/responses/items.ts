import { asArray, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Native } from '../../core/prompt.ts'

/**
 * A message as the items that it was read from; none for one that was rewritten. One item is the native itself; of an
 * answer that is several items (thoughts, words, calls) the native is `{ items }`, which no single item looks like.
 */
export function itemsOf(message: Message): readonly JsonObject[] {
  if (message.native?.dialect !== 'responses') return []
  const { value } = message.native
  const isOne = value['type'] !== undefined || value['role'] !== undefined
  return isOne ? [value] : asArray(value['items']).filter(isJsonObject)
}

/** The native of the message that is read from these items. */
export function nativeOfItems(items: readonly JsonObject[]): Native {
  const [only] = items
  return { dialect: 'responses', value: only !== undefined && items.length === 1 ? only : { items } }
}

/** The items of an `input`; a text alone is one message of the user. */
export function inputItems(input: Json | undefined): readonly Json[] {
  return typeof input === 'string' ? [{ role: 'user', content: input }] : asArray(input)
}
