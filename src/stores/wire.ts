import type { Claim, Quota, SettledEntry, Settlement, WriteOptions } from '../core/store.ts'
import { bytesOf, isGiant, poolOf, refuseGiant, shareOf, type BulkLimits, type PoolLimit } from './bounds.ts'

/** JSON requests to the scripts of Redis and the functions of PostgreSQL, with texts encoded for UTF-8. */

/** Returns the request to write a value, or to delete a key when `value` is undefined. */
export function valueRequest(
  key: string,
  value: string | undefined,
  options: WriteOptions,
  limits: BulkLimits,
): object {
  if (value === undefined) return { key: encodeText(key) }
  const { ttlMs, quota, mustFit = false } = options
  const pool = poolOf(options)
  const bytes = bytesOf(key, value)
  if (pool === 'expiring') refuseGiant(bytes, limits.expiring, quota)
  return {
    key: encodeText(key),
    value: encodeText(value),
    pool,
    share: encodeText(shareOf(key, quota)),
    bytes,
    mustFit,
    ...(pool !== 'durable' && { limit: limits[pool] }),
    ...(ttlMs !== undefined && { ttl: Math.ceil(ttlMs) }),
    ...(quota !== undefined && { quota: boundsOf(quota) }),
  }
}

export function entryRequest({ log, at, value, ttlMs, quota }: SettledEntry, limits: BulkLimits): object {
  const bytes = bytesOf(log, value)
  refuseGiant(bytes, limits.logs, quota)
  return {
    log: encodeText(log),
    at,
    value: encodeText(value),
    bytes,
    share: encodeText(quota === undefined ? `log:${log}` : `quota:${quota.name}`),
    ...(ttlMs !== undefined && { ttl: Math.ceil(ttlMs) }),
    ...(quota !== undefined && { quota: boundsOf(quota) }),
  }
}

/** `place` is the claim's index in the request. */
export function claimRequest({ counter, amount, max, expiresAt, elastic }: Claim, place: number): object {
  return {
    place,
    counter: encodeText(counter),
    amount,
    max,
    ends: expiresAt,
    ...(elastic === true && { elastic: true }),
  }
}

export function settlementRequest(settlement: Settlement, limits: BulkLimits): object {
  const { reservationId, charges, tallies, entries = [] } = settlement
  return {
    ticket: encodeText(reservationId),
    charges: charges.map(({ counter, amount, expiresAt }) => ({
      counter: encodeText(counter),
      amount,
      ends: expiresAt,
    })),
    tallies: tallies.map(({ name, amounts, expiresAt }) => ({
      name: encodeText(name),
      amounts: safeAmounts(amounts),
      ...(expiresAt !== undefined && { ends: expiresAt }),
    })),
    entries: entryRequests(entries, limits),
  }
}

/** Returns the entries of a settlement without those above their quota, which must not prevent the settlement. */
export function entryRequests(entries: readonly SettledEntry[], limits: BulkLimits): readonly object[] {
  return entries
    .filter(({ log, value, quota }) => !isGiant(bytesOf(log, value), limits.logs, quota))
    .map((entry) => entryRequest(entry, limits))
}

/** Leaves out amounts that are not safe integers, because they would corrupt later sums. */
function safeAmounts(amounts: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  const safe = Object.entries(amounts).filter(([, amount]) => Number.isSafeInteger(amount))
  return Object.fromEntries(safe.map(([field, amount]) => [encodeText(field), amount]))
}

function boundsOf({ maxEntries, maxBytes }: Quota): PoolLimit {
  return { entries: maxEntries, bytes: maxBytes }
}

/** Reads a field of a script's reply; undefined when it is absent. */
export function fieldOf(reply: unknown, name: string): unknown {
  return typeof reply === 'object' && reply !== null ? Reflect.get(reply, name) : undefined
}

/** Reads a list. Lua does not distinguish an empty list from an empty table, which arrives as an object. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : String(value ?? '')
}

/** Reads a number that a script wrote as text. */
export function numberOf(value: unknown): number {
  return Number(value ?? 0)
}

/**
 * Writes any JavaScript string as text that UTF-8 databases accept, and reads it back.
 *
 * NUL and lone surrogates are not valid in PostgreSQL text, and SQLite and Redis clients cut or replace them. Each
 * becomes the noncharacter U+FDD0 and four hexadecimal digits. Other text is unchanged, and a prefix stays a prefix.
 */
const ESCAPE = '\ufdd0'
const UNSAFE = /\ufdd0|\p{Surrogate}/gu
const ESCAPED = /\ufdd0([0-9a-f]{4})/g

export function encodeText(text: string): string {
  return text.replace(UNSAFE, escape).replaceAll('\0', escape)
}

export function decodeText(text: string): string {
  if (!text.includes(ESCAPE)) return text
  return text.replace(ESCAPED, (_match, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
}

function escape(unit: string): string {
  return ESCAPE + unit.charCodeAt(0).toString(16).padStart(4, '0')
}
