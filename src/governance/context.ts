/** Reads the context of a caller. */
import { GatewayError } from '../core/errors.ts'
import type { CallerContext } from './caller.ts'
import { SAFE_ID } from './record-table.ts'

const MAX_TAGS = 16
/** Printable ASCII without spaces. */
const CONTEXT_ID = /^[!-~]{1,128}$/
export const CONTEXT_ID_FORMAT = '1 to 128 printable ASCII characters without spaces'

/** True for an id of a user or session. */
export function isContextId(id: unknown): id is string {
  return typeof id === 'string' && CONTEXT_ID.test(id)
}
/** Without the characters that separate tags in the header. */
const TAG_NAME = /^[\w.-]{1,64}$/
const TAG_VALUE = /^[!-+\--~]{1,64}$/
const KNOWN_FIELDS = ['customer', 'user', 'session', 'tags', 'payer']

/** Returns a copy. Throws `invalid-request` with the name of the field. @param source Begins the message. */
export function readContext(context: unknown, source: string): CallerContext {
  if (!isContext(context)) throw contextError(source, 'context', 'an object such as { customer: "acme" }')
  const { customer, user, session, tags, payer } = context
  const unknown = Object.keys(context).find((name) => !KNOWN_FIELDS.includes(name))
  if (unknown !== undefined) throw contextError(source, unknown.slice(0, 100), `one of ${KNOWN_FIELDS.join(', ')}`)
  if (customer !== undefined && !(typeof customer === 'string' && SAFE_ID.test(customer)))
    throw contextError(source, 'customer', '1 to 128 letters, digits, dots, hyphens and underscores')
  for (const [name, id] of [
    ['user', user],
    ['session', session],
  ] as const) {
    if (id !== undefined && !isContextId(id)) throw contextError(source, name, CONTEXT_ID_FORMAT)
  }
  if (payer !== undefined && payer !== 'operator' && payer !== 'customer')
    throw contextError(source, 'payer', "'operator' or 'customer'")
  if (payer === 'customer' && customer === undefined)
    throw contextError(source, 'customer', 'an id, because payer is "customer"')
  return { customer, user, session, payer, ...(tags !== undefined && { tags: readTags(tags, source) }) }
}

/** A promise or a list would count as a context without a customer, and lift its limits. */
function isContext(value: unknown): value is CallerContext {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === null || prototype === Object.prototype) return true
  return KNOWN_FIELDS.some((name) => name in value)
}

function readTags(tags: unknown, source: string): Readonly<Record<string, string>> {
  const expected = `an object with at most ${MAX_TAGS} names of 1 to 64 letters, digits, dots, hyphens and underscores, and values of 1 to 64 printable ASCII characters without spaces and commas`
  if (typeof tags !== 'object' || tags === null || Array.isArray(tags)) throw contextError(source, 'tags', expected)
  const entries: readonly (readonly [string, unknown])[] = Object.entries(tags)
  if (entries.length > MAX_TAGS || !entries.every(isTag)) throw contextError(source, 'tags', expected)
  return Object.fromEntries(entries)
}

function isTag(entry: readonly [string, unknown]): entry is readonly [string, string] {
  const [name, value] = entry
  return TAG_NAME.test(name) && typeof value === 'string' && TAG_VALUE.test(value)
}

function contextError(source: string, field: string, expected: string): GatewayError {
  return new GatewayError('invalid-request', `${source}: ${field}: expected ${expected}.`, { param: field })
}
