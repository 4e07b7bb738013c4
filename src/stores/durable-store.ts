import { GatewayError } from '../core/errors.ts'
import { functionCheck, type OptionCheck, optionsOf, integerFrom } from '../core/option-checks.ts'
import { type Quota, quotaExceededError } from '../core/store.ts'
import type { PoolLimit } from './store-rules.ts'

/**
 * Limits on the data that requests write. Keys, budgets and rate limits are in a separate, unlimited pool, which
 * prevents bulk data from evicting or blocking them.
 */
export interface BulkLimits {
  /**
   * Values without an expiry that count against a quota: message batches. If the pool is full, a write fails with
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

const checkPool = optionsOf({ entries: integerFrom(0), bytes: integerFrom(0) }, ['entries', 'bytes'])

export const STORE_CHECKS: Readonly<Record<'limits' | 'now', OptionCheck>> = {
  limits: optionsOf({ owned: checkPool, expiring: checkPool, logs: checkPool }),
  now: functionCheck('now()'),
}

const DEFAULT_LIMIT: PoolLimit = { entries: 1_000_000, bytes: 1024 ** 3 }

export const DEFAULT_BULK_LIMITS: BulkLimits = { owned: DEFAULT_LIMIT, expiring: DEFAULT_LIMIT, logs: DEFAULT_LIMIT }

/** Returns true for a value that would not fit even if all other values were dropped. */
export function isOversized(bytes: number, limit: PoolLimit, quota: Quota | undefined): boolean {
  return bytes > limit.bytes || (quota !== undefined && (bytes > quota.maxBytes || quota.maxEntries < 1))
}

export function rejectOversized(bytes: number, limit: PoolLimit, quota: Quota | undefined): void {
  if (!isOversized(bytes, limit, quota)) return
  throw quota === undefined || bytes > limit.bytes ? storeFullError() : quotaExceededError(quota)
}

export function storeFullError(): GatewayError {
  return new GatewayError('overloaded', 'The store has no capacity for this value. Raise the limits of the store.')
}

const ESCAPE = '\ufdd0'
const UNSAFE_UNIT = /\ufdd0|\p{Surrogate}/gu
const ESCAPED_UNIT = /\ufdd0([0-9a-f]{4})/g

/**
 * Encodes any string so that every store returns it unchanged. PostgreSQL rejects NUL and lone surrogates, and SQLite
 * and Redis clients truncate or replace them. The encoding replaces each such code unit, and U+FDD0 itself, with the
 * noncharacter U+FDD0 and four hexadecimal digits. Other text is unchanged, and an encoded prefix of a string is also a
 * prefix of the encoded string.
 */
export function encodeText(text: string): string {
  return text.replace(UNSAFE_UNIT, escapeUnit).replaceAll('\0', escapeUnit)
}

export function decodeText(text: string): string {
  if (!text.includes(ESCAPE)) return text
  return text.replace(ESCAPED_UNIT, (_match, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
}

function escapeUnit(unit: string): string {
  return ESCAPE + unit.charCodeAt(0).toString(16).padStart(4, '0')
}
