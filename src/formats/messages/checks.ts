import { GatewayError } from '../../core/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'

/** Returns the error for an unexpected value at `path`. */
export type Complaint = (path: string, found: Json | undefined, expected: string) => GatewayError

export const callerComplaint: Complaint = (path, found, expected) =>
  new GatewayError('invalid-request', `${path} is ${kindOf(found)}; expected ${expected}.`, { param: path })

/** An unreadable answer is the upstream's fault, not the caller's. */
export const upstreamComplaint: Complaint = (path, found, expected) =>
  new GatewayError('upstream', `The upstream's answer cannot be read: ${path} is ${kindOf(found)}, not ${expected}.`)

const MAX_ECHO_LENGTH = 40

/** Describes a value without repeating long texts. */
function kindOf(value: Json | undefined): string {
  if (value === undefined) return 'missing'
  if (value === null || typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (typeof value === 'string') return value.length > MAX_ECHO_LENGTH ? 'a long string' : JSON.stringify(value)
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : `an array of ${value.length} elements`
  return 'an object'
}

export function stringAt(object: JsonObject, name: string, path: string, complain: Complaint): string {
  const value = object[name]
  if (typeof value !== 'string') throw complain(`${path}.${name}`, value, 'a string')
  return value
}

export function objectOf(value: Json | undefined, path: string, complain: Complaint): JsonObject {
  if (!isJsonObject(value)) throw complain(path, value, 'an object')
  return value
}

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

/** Returns true for an absent field and for null, which mean the same. */
export function isAbsent(value: Json | undefined): value is null | undefined {
  return value === undefined || value === null
}

/** Returns true when two JSON values are equal. */
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
