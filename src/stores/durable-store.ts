import { GatewayError } from '../core/errors.ts'
import { functionCheck, type OptionCheck, optionsOf, integerFrom } from '../core/option-checks.ts'
import {
  type Claim,
  type Level,
  type Quota,
  quotaExceeded,
  type ReserveRequest,
  type SettledEntry,
  type Settlement,
  type WriteOptions,
} from '../core/store.ts'
import { duplicateReservationId, expiredCounter } from './reservation-rules.ts'

/**
 * Maximum number of values and their total size in bytes: two per UTF-16 code unit of key and value, plus 128 per
 * value.
 */
export interface PoolLimit {
  readonly entries: number
  readonly bytes: number
}

/**
 * Limits on the data that requests write. Keys, budgets and rate limits are in a separate, unlimited pool, which
 * prevents bulk data from evicting or blocking them.
 */
export interface BulkLimits {
  /**
   * Values without an expiry that count against a quota: message batches. When full, a write fails with
   * `quota-exceeded`.
   */
  readonly owned: PoolLimit
  /**
   * Values with an expiry: recordings, idempotency records and transcripts. A full pool drops the oldest value of its
   * largest share.
   */
  readonly expiring: PoolLimit
  /** Log entries: the audit trail. A full pool drops the oldest entry of its largest share. */
  readonly logs: PoolLimit
}

const checkLimit = optionsOf({ entries: integerFrom(0), bytes: integerFrom(0) }, ['entries', 'bytes'])

export const STORE_CHECKS: Readonly<Record<'limits' | 'now', OptionCheck>> = {
  limits: optionsOf({ owned: checkLimit, expiring: checkLimit, logs: checkLimit }),
  now: functionCheck('now()'),
}

const DEFAULT_LIMIT: PoolLimit = { entries: 1_000_000, bytes: 1024 ** 3 }

export const BULK_LIMITS: BulkLimits = { owned: DEFAULT_LIMIT, expiring: DEFAULT_LIMIT, logs: DEFAULT_LIMIT }

/** The pools of values. Log entries are in a fourth pool, `logs`. */
export type ValuePool = 'durable' | 'owned' | 'expiring'

const OVERHEAD_BYTES = 128

export function bytesOf(key: string, value: string): number {
  return 2 * (key.length + value.length) + OVERHEAD_BYTES
}

export function poolOf({ ttlMs, quota }: WriteOptions): ValuePool {
  if (ttlMs !== undefined) return 'expiring'
  return quota === undefined ? 'durable' : 'owned'
}

/** Returns the share of its pool that a value counts against: its quota, or the first word of its key (`turn:`). */
export function shareOf(key: string, quota: Quota | undefined): string {
  return quota?.name ?? key.slice(0, key.indexOf(':') + 1)
}

/** Returns the share of the log pool that an entry counts against: its quota, or its log. */
export function logShareOf(log: string, quota: Quota | undefined): string {
  return quota === undefined ? `log:${log}` : `quota:${quota.name}`
}

/** Returns true for a value that would not fit even if all other values were dropped. */
export function isOversized(bytes: number, limit: PoolLimit, quota: Quota | undefined): boolean {
  return bytes > limit.bytes || (quota !== undefined && (bytes > quota.maxBytes || quota.maxEntries < 1))
}

export function rejectOversized(bytes: number, limit: PoolLimit, quota: Quota | undefined): void {
  if (!isOversized(bytes, limit, quota)) return
  throw quota === undefined || bytes > limit.bytes ? storeFullError() : quotaExceeded(quota)
}

export function storeFullError(): GatewayError {
  return new GatewayError('overloaded', 'The store has no capacity for this value. Raise the limits of the store.')
}

/**
 * Requests to Redis scripts and PostgreSQL functions, and their replies, are JSON. Strings are encoded with
 * `encodeText`.
 */

/** Without a value, the request deletes the key. */
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
  if (pool === 'expiring') rejectOversized(bytes, limits.expiring, quota)
  return {
    key: encodeText(key),
    value: encodeText(value),
    pool,
    share: encodeText(shareOf(key, quota)),
    bytes,
    mustFit,
    ...(pool !== 'durable' && { limit: limits[pool] }),
    ...(ttlMs !== undefined && { ttl: Math.ceil(ttlMs) }),
    ...(quota !== undefined && { quota: poolLimitOf(quota) }),
  }
}

export function entryRequest({ log, at, value, ttlMs, quota }: SettledEntry, limits: BulkLimits): object {
  const bytes = bytesOf(log, value)
  rejectOversized(bytes, limits.logs, quota)
  return {
    log: encodeText(log),
    at,
    value: encodeText(value),
    bytes,
    share: encodeText(logShareOf(log, quota)),
    ...(ttlMs !== undefined && { ttl: Math.ceil(ttlMs) }),
    ...(quota !== undefined && { quota: poolLimitOf(quota) }),
  }
}

export function reserveRequest({ reservationId, claims, least, expiresAfterMs }: ReserveRequest): object {
  return {
    reservation: encodeText(reservationId),
    claims: claims.map(claimRequest),
    expiresAfter: Math.ceil(expiresAfterMs),
    ...(least !== undefined && { minimum: least }),
  }
}

/** PostgreSQL uses `ordinal` to restore the order of the claims. */
function claimRequest({ counter, amount, max, expiresAt, elastic }: Claim, ordinal: number): object {
  return {
    ordinal,
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
    reservation: encodeText(reservationId),
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

/** Omits entries larger than their quota, which must not prevent the settlement. */
export function entryRequests(entries: readonly SettledEntry[], limits: BulkLimits): readonly object[] {
  return entries
    .filter(({ log, value, quota }) => !isOversized(bytesOf(log, value), limits.logs, quota))
    .map((entry) => entryRequest(entry, limits))
}

/** Omits amounts that are not safe integers, which would corrupt later sums. */
function safeAmounts(amounts: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  const safe = Object.entries(amounts).filter(([, amount]) => Number.isSafeInteger(amount))
  return Object.fromEntries(safe.map(([field, amount]) => [encodeText(field), amount]))
}

function poolLimitOf({ maxEntries, maxBytes }: Quota): PoolLimit {
  return { entries: maxEntries, bytes: maxBytes }
}

export function throwReserveError(reply: unknown): void {
  const error = fieldOf(reply, 'error')
  if (error === 'duplicate') throw duplicateReservationId()
  if (error === 'expired') throw expiredCounter(decodeText(textOf(fieldOf(reply, 'counter'))))
}

export function levelIn(pair: unknown): Level {
  const [spent = 0, held = 0] = listOf(pair).map(numberOf)
  return { spent, held }
}

export function fieldOf(reply: unknown, name: string): unknown {
  return typeof reply === 'object' && reply !== null ? Reflect.get(reply, name) : undefined
}

/** Lua encodes an empty list as an empty object. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : String(value ?? '')
}

/** Scripts return numbers as text. */
export function numberOf(value: unknown): number {
  return Number(value ?? 0)
}

const ESCAPE = '\ufdd0'
const UNSAFE = /\ufdd0|\p{Surrogate}/gu
const ESCAPED = /\ufdd0([0-9a-f]{4})/g

/**
 * Encodes any string as valid UTF-8. PostgreSQL rejects NUL and lone surrogates, and SQLite and Redis clients truncate
 * or replace them. Each becomes the noncharacter U+FDD0 and four hexadecimal digits. Other text is unchanged, and an
 * encoded prefix of a string is also a prefix of the encoded string.
 */
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
