import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'

/**
 * Returns an id for a tool call that its upstream sent without one. It is random, not counted: the caller sends it back with
 * the result, and a conversation with two calls of the same id is refused by vendors.
 */
export function freshId(prefix: 'call' | 'toolu'): string {
  return `${prefix}_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`
}

/** The value when it is a string with at least one character. */
export function idOf(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** The object with another value in one field; the same object where nothing differs, so that it leaves as it came. */
export function replaceField(object: JsonObject, field: string, value: Json | undefined): JsonObject {
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
