import { expects, functionCheck, type OptionCheck, optionsOf } from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import {
  type Claim,
  type Level,
  quotaExceededError,
  type ReserveRequest,
  type SettledEntry,
  type Settlement,
  type Store,
  type WriteOptions,
  type Quota,
} from '../core/store.ts'
import {
  bytesOf,
  checkAmount,
  checkClaims,
  checkPool,
  duplicateReservationError,
  expiredCounterError,
  isOversized,
  limitOf,
  logShareOf,
  poolOf,
  shareOf,
  type PoolLimit,
} from './store-rules.ts'

/**
 * Limits on the data that requests write. Keys, budgets and rate limits do not count toward these limits, so bulk data
 * cannot evict or block them.
 */
export interface BulkLimits {
  /**
   * Values without an expiry that count against a key's quota, such as message batches. A write fails with
   * `quota-exceeded` if the key would use more than its quota, or more than remains free for other keys.
   */
  readonly owned: PoolLimit
  /**
   * Values with an expiry, such as recordings. A full pool drops the oldest values of its largest share (all values of
   * one kind that belong to one key, or to no key).
   */
  readonly expiring: PoolLimit
  /**
   * Log entries, such as audit records. A full pool drops the oldest entries of its largest share (all entries of one
   * kind that belong to one key, or one log for entries without a quota).
   */
  readonly logs: PoolLimit
}

export const STORE_CHECKS: Readonly<Record<'limits' | 'now', OptionCheck>> = {
  limits: optionsOf({ owned: checkPool, expiring: checkPool, logs: checkPool }),
  now: functionCheck('now()'),
}

export function clientCheck(expected: string): OptionCheck {
  return expects(expected, (value) => isJsonObject(value) || typeof value === 'function')
}

const DEFAULT_LIMIT: PoolLimit = { entries: 1_000_000, bytes: 1024 ** 3 }

export const DEFAULT_BULK_LIMITS: BulkLimits = { owned: DEFAULT_LIMIT, expiring: DEFAULT_LIMIT, logs: DEFAULT_LIMIT }

export function rejectOversized(bytes: number, limit: PoolLimit, quota: Quota | undefined): void {
  if (!isOversized(bytes, limit, quota)) return
  throw quota === undefined || bytes > limit.bytes ? storeFullError() : quotaExceededError(quota)
}

function storeFullError(): GatewayError {
  return new GatewayError('overloaded', 'The store has no capacity for this value. Raise the limits of the store.')
}

const ESCAPE = '\ufdd0'
const UNSAFE_UNIT = /\ufdd0|\p{Surrogate}/gu
const ESCAPED_UNIT = /\ufdd0([0-9a-f]{4})/g

/**
 * PostgreSQL rejects NUL and lone surrogates. SQLite and Redis clients truncate or replace them. The encoded prefix of
 * a string is a prefix of the encoded string, unless the prefix splits a surrogate pair.
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

export type RemoteOperation =
  | 'read_value'
  | 'write_value'
  | 'list_keys'
  | 'append'
  | 'read_entries'
  | 'reserve_claims'
  | 'settle_reservation'
  | 'read_levels'
  | 'read_tallies'

/** Requests and replies are JSON, whose strings are encoded with `encodeText`. */
export type CallOperation = (operation: RemoteOperation, request: object) => Promise<unknown>

export function createRemoteValues(
  call: CallOperation,
  limits: BulkLimits,
): Pick<Store, 'get' | 'set' | 'swap' | 'delete' | 'list' | 'append'> {
  async function write(
    key: string,
    value: string | undefined,
    options: WriteOptions = {},
    expectation: object = {},
  ): Promise<unknown> {
    const reply = await call('write_value', { ...toValueRequest(key, value, options, limits), ...expectation })
    if (fieldOf(reply, 'full') === true)
      throw options.quota === undefined ? storeFullError() : quotaExceededError(options.quota)
    return reply
  }

  return {
    get: async (key) => {
      const value = fieldOf(await call('read_value', { key: encodeText(key) }), 'value')
      return value === undefined ? undefined : decodeText(toText(value))
    },
    set: async (key, value, options) => void (await write(key, value, options)),
    swap: async (key, expected, value, options) => {
      const expectation = { isSwap: true, ...(expected !== undefined && { expected: encodeText(expected) }) }
      return fieldOf(await write(key, value, options, expectation), 'done') === true
    },
    delete: async (key) => fieldOf(await write(key, undefined), 'found') === true,
    list: async (prefix, { after, limit }) => {
      const encodedPrefix = encodeText(prefix)
      const keys: string[] = []
      let cursor = after === undefined ? undefined : encodeText(after)
      do {
        const range = { limit: limit - keys.length, ...(cursor !== undefined && { after: cursor }) }
        const reply = await call('list_keys', { prefix: encodedPrefix, ...range })
        keys.push(...toList(Array.isArray(reply) ? reply : fieldOf(reply, 'keys')).map(toText))
        // Redis returns a cursor if another call must continue the list.
        const next = fieldOf(reply, 'next')
        cursor = next === undefined ? undefined : toText(next)
      } while (cursor !== undefined && keys.length < limit)
      return keys.filter((key) => key.startsWith(encodedPrefix)).map(decodeText)
    },
    append: async (log, entry) => {
      const entries = [log].flat().map((name) => toEntryRequest({ ...entry, log: name }, limits))
      await call('append', { entries, logLimit: limits.logs })
    },
  }
}

export type RemoteCounters = Pick<Store, 'reserve' | 'settle' | 'levels' | 'tallies'>

export function createRemoteCounters(call: CallOperation, limits: BulkLimits): RemoteCounters {
  return {
    reserve: async (request) => {
      checkClaims(request)
      const reply = await call('reserve_claims', toReserveRequest(request))
      const error = fieldOf(reply, 'error')
      if (error === 'duplicate') throw duplicateReservationError()
      if (error === 'expired') throw expiredCounterError(decodeText(toText(fieldOf(reply, 'counter'))))
      const levels = toList(fieldOf(reply, 'levels')).map(toNumber)
      const rejectedIndex = fieldOf(reply, 'refused')
      if (rejectedIndex !== undefined) return { accepted: false, rejectedIndex: toNumber(rejectedIndex), levels }
      return { accepted: true, granted: toNumber(fieldOf(reply, 'granted')), levels }
    },
    settle: async (settlement) =>
      fieldOf(await call('settle_reservation', toSettlementRequest(settlement, limits)), 'settled') === true,
    levels: async (counters) => toList(await call('read_levels', { counters: counters.map(encodeText) })).map(toLevel),
    tallies: async (names) => toList(await call('read_tallies', { names: names.map(encodeText) })).map(toAmounts),
  }
}

function toValueRequest(key: string, value: string | undefined, options: WriteOptions, limits: BulkLimits): object {
  if (value === undefined) return { key: encodeText(key) }
  const { ttlMs, quota, mayExceedQuota = false } = options
  const pool = poolOf(options)
  const bytes = bytesOf(key, value)
  if (pool === 'expiring') rejectOversized(bytes, limits.expiring, quota)
  return {
    key: encodeText(key),
    value: encodeText(value),
    pool,
    share: encodeText(shareOf(key, quota)),
    bytes,
    // Installed SQL functions read the field by this name.
    mustFit: mayExceedQuota,
    ...(pool !== 'durable' && { limit: limits[pool] }),
    ...(ttlMs !== undefined && { ttl: Math.ceil(ttlMs) }),
    ...(quota !== undefined && { quota: limitOf(quota) }),
  }
}

function toEntryRequest({ log, at, value, ttlMs, quota }: SettledEntry, limits: BulkLimits): object {
  const bytes = bytesOf(log, value)
  rejectOversized(bytes, limits.logs, quota)
  return {
    log: encodeText(log),
    at,
    value: encodeText(value),
    bytes,
    share: encodeText(logShareOf(log, quota)),
    ...(ttlMs !== undefined && { ttl: Math.ceil(ttlMs) }),
    ...(quota !== undefined && { quota: limitOf(quota) }),
  }
}

function toReserveRequest({ reservationId, claims, minGrant, expiresAfterMs }: ReserveRequest): object {
  return {
    reservation: encodeText(reservationId),
    claims: claims.map(toClaimRequest),
    expiresAfter: Math.ceil(expiresAfterMs),
    ...(minGrant !== undefined && { minimum: minGrant }),
  }
}

/** PostgreSQL uses `ordinal` to restore the order of the claims. */
function toClaimRequest({ counter, amount, max, expiresAt, elastic }: Claim, ordinal: number): object {
  return {
    ordinal,
    counter: encodeText(counter),
    amount,
    max,
    ends: expiresAt,
    ...(elastic === true && { elastic: true }),
  }
}

export function toSettlementRequest(settlement: Settlement, limits: BulkLimits): object {
  const { reservationId, charges, tallies, entries = [] } = settlement
  for (const { counter, amount } of charges) checkAmount(counter, amount)
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
    ...toEntriesRequest(entries, limits),
  }
}

/** Omits oversized entries, because they must not prevent the settlement. */
export function toEntriesRequest(entries: readonly SettledEntry[], limits: BulkLimits): object {
  const fitting = entries.filter(({ log, value, quota }) => !isOversized(bytesOf(log, value), limits.logs, quota))
  return { entries: fitting.map((entry) => toEntryRequest(entry, limits)), logLimit: limits.logs }
}

/** Omits amounts that are not safe integers, which would corrupt later sums. */
function safeAmounts(amounts: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  const safe = Object.entries(amounts).filter(([, amount]) => Number.isSafeInteger(amount))
  return Object.fromEntries(safe.map(([field, amount]) => [encodeText(field), amount]))
}

function toLevel(pair: unknown): Level {
  const [spent = 0, held = 0] = toList(pair).map(toNumber)
  return { spent, held }
}

function toAmounts(sums: unknown): Readonly<Record<string, number>> {
  const fields = typeof sums === 'object' && sums !== null ? Object.entries(sums) : []
  return Object.fromEntries(fields.map(([field, amount]) => [decodeText(field), toNumber(amount)]))
}

export function fieldOf(reply: unknown, name: string): unknown {
  return typeof reply === 'object' && reply !== null ? Reflect.get(reply, name) : undefined
}

/** Lua encodes an empty list as an empty object. */
export function toList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

export function toText(value: unknown): string {
  return typeof value === 'string' ? value : String(value ?? '')
}

export function toNumber(value: unknown): number {
  return Number(value ?? 0)
}
