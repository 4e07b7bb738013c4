import { GatewayError } from '../core/errors.ts'
import { aFunction, optionsOf, wholeFrom, type OptionCheck } from '../core/option-checks.ts'
import { type Quota, type WriteOptions, quotaExceeded } from '../core/store.ts'

/** Maximum number of values, and of bytes (two for each UTF-16 unit of key and value, and a constant per value). */
export interface PoolLimit {
  readonly entries: number
  readonly bytes: number
}

/**
 * Limits of the data that keys make a store keep. Keys, budgets and rate limits are in a pool of their own without a
 * limit, so that bulk data never evicts or blocks them.
 */
export interface BulkLimits {
  /**
   * Values without an expiry that count against a quota: message batches. A write to a full pool fails with
   * `quota-exceeded`.
   */
  readonly owned: PoolLimit
  /**
   * Values with an expiry: recordings, idempotency records, transcripts. A full pool drops the oldest value of its
   * largest share.
   */
  readonly expiring: PoolLimit
  /** Log entries: the audit. A full pool drops the oldest entry of its largest share. */
  readonly logs: PoolLimit
}

const checkLimit = optionsOf({ entries: wholeFrom(0), bytes: wholeFrom(0) }, ['entries', 'bytes'])

/** The checks of options that all durable stores share. */
export const STORE_CHECKS: Readonly<Record<'limits' | 'now', OptionCheck>> = {
  limits: optionsOf({ owned: checkLimit, expiring: checkLimit, logs: checkLimit }),
  now: aFunction('now()'),
}

const GIB = 1024 ** 3

/** 1,000,000 entries and 1 GiB each. */
export const BULK_LIMITS: BulkLimits = {
  owned: { entries: 1_000_000, bytes: GIB },
  expiring: { entries: 1_000_000, bytes: GIB },
  logs: { entries: 1_000_000, bytes: GIB },
}

/** Pools never take space from each other. */
export type PoolName = 'durable' | 'owned' | 'expiring' | 'logs'

/** Overhead of a value or log entry, in bytes. */
const OVERHEAD_BYTES = 128

export function bytesOf(key: string, value: string): number {
  return 2 * (key.length + value.length) + OVERHEAD_BYTES
}

export function poolOf({ ttlMs, quota }: WriteOptions): Exclude<PoolName, 'logs'> {
  if (ttlMs !== undefined) return 'expiring'
  return quota === undefined ? 'durable' : 'owned'
}

/**
 * Returns the name under which a value is counted: its quota, or the first word of its key (`turn:`) without a quota.
 */
export function shareOf(key: string, quota: Quota | undefined): string {
  return quota?.name ?? key.slice(0, key.indexOf(':') + 1)
}

/** Returns true for a value that exceeds the limits even if all others are dropped. */
export function isGiant(bytes: number, limit: PoolLimit, quota: Quota | undefined): boolean {
  return bytes > limit.bytes || (quota !== undefined && (bytes > quota.maxBytes || quota.maxEntries < 1))
}

/** Throws for a value that exceeds the limits even if all others are dropped. */
export function refuseGiant(bytes: number, limit: PoolLimit, quota: Quota | undefined): void {
  if (!isGiant(bytes, limit, quota)) return
  throw quota === undefined || bytes > limit.bytes ? storeFull() : quotaExceeded(quota)
}

export function storeFull(): GatewayError {
  return new GatewayError('overloaded', 'The store has no capacity for this value. Raise the limits of the store.')
}
