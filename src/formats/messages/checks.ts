import { GatewayError } from '../../core/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'

/** What to throw when the value found at `path` is not what was expected. */
export type Complaint = (path: string, found: Json | undefined, expected: string) => GatewayError

/** Errors name the field. */
export const callerComplaint: Complaint = (path, found, expected) =>
  new GatewayError('invalid-request', `${path} is ${kindOf(found)}; expected ${expected}.`, { param: path })

/** An upstream that answers nonsense is at fault, not the caller. */
export const upstreamComplaint: Complaint = (path, found, expected) =>
  new GatewayError('upstream', `The upstream's answer cannot be read: ${path} is ${kindOf(found)}, not ${expected}.`)

const MAX_ECHO_LENGTH = 40

/** What a caller sent, without repeating more of it than helps to find it. */
function kindOf(value: Json | undefined): string {
  if (value === undefined) return 'missing'
  if (value === null || typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (typeof value === 'string') return value.length > MAX_ECHO_LENGTH ? 'a long string' : JSON.stringify(value)
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : `an array of ${value.length} elements`
  return 'an object'
}

/** The string at `object[name]`. */
export function stringAt(object: JsonObject, name: string, path: string, complain: Complaint): string {
  const value = object[name]
  if (typeof value !== 'string') throw complain(`${path}.${name}`, value, 'a string')
  return value
}

/** The value when it is an object. */
export function objectOf(value: Json | undefined, path: string, complain: Complaint): JsonObject {
  if (!isJsonObject(value)) throw complain(path, value, 'an object')
  return value
}

/** The value when it is an array, optionally of a limited length. */
export function arrayOf(
  value: Json | undefined,
  path: string,
  complain: Complaint,
  longest: number = Number.POSITIVE_INFINITY,
): readonly Json[] {
  if (!Array.isArray(value)) throw complain(path, value, 'an array')
  const items = value as readonly Json[]
  if (items.length > longest) throw complain(path, value, `an array of at most ${longest} elements`)
  return items
}

/** True for a field that was left out or is null, which means the same to both formats. */
export function isAbsent(value: Json | undefined): value is null | undefined {
  return value === undefined || value === null
}

/** True when two JSON values say the same. */
export function sameJson(left: Json | undefined, right: Json | undefined): boolean {
  if (left === right) return true
  if (Array.isArray(left) && Array.isArray(right)) return sameItems(left, right)
  if (!isJsonObject(left) || !isJsonObject(right)) return false
  const names = Object.keys(left)
  return names.length === Object.keys(right).length && names.every((name) => sameJson(left[name], right[name]))
}

function sameItems(left: readonly Json[], right: readonly Json[]): boolean {
  return left.length === right.length && left.every((item, index) => sameJson(item, right[index]))
}
