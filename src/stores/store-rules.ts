import { integerFrom, type OptionCheck, optionsOf } from '../core/check-options.ts'
import { GatewayError, storeError } from '../core/errors.ts'
import {
  type Claim,
  OTHER,
  type Quota,
  type ReserveRequest,
  type ReserveResult,
  type Store,
  type WriteOptions,
} from '../core/store.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import type { Runtime } from '../core/ports.ts'

export const MAX_AMOUNT: number = Number.MAX_SAFE_INTEGER

export interface StoreClock<Time = number> {
  /** Read for each call, because a gateway may replace it. */
  now: () => Time | number
}

/** Creates a store's clock. A gateway replaces `initial`, but not a clock in the store's options. */
export function createStoreClock<Time extends number | undefined>(
  own: (() => number) | undefined,
  initial: () => Time,
): { readonly clock: StoreClock<Time>; readonly useClock: NonNullable<Store['useClock']> } {
  const clock: StoreClock<Time> = { now: own ?? initial }
  return { clock, useClock: (now) => void (own === undefined && (clock.now = now)) }
}

/** Without a time, the server uses its own clock. */
export function withTime(request: object, time: number | undefined): object {
  return time === undefined ? request : { ...request, now: time }
}

/** Minimum time for which an expired reservation can still be settled, in milliseconds. */
export const LATE_SETTLEMENT_MS: number = 2 * 3_600_000

/** `levels[i]` is the sum of the spent and held amounts of claim i's counter before the reservation. */
export function decideReservation({ claims, minGrant }: ReserveRequest, levels: readonly number[]): ReserveResult {
  let smallestGrant = Infinity
  for (const [index, { max, amount, elastic }] of claims.entries()) {
    const remaining = max - (levels[index] ?? 0)
    const needed = elastic === true ? Math.min(amount, minGrant ?? amount) : amount
    if (needed > remaining) return { accepted: false, rejectedIndex: index, levels }
    if (elastic === true) smallestGrant = Math.min(smallestGrant, amount, remaining)
  }
  const granted = smallestGrant === Infinity ? 0 : smallestGrant
  const levelsAfter = claims.map((claim, index) => (levels[index] ?? 0) + heldAmount(claim, granted))
  return { accepted: true, granted, levels: levelsAfter }
}

export function heldAmount({ elastic, amount }: Claim, granted: number): number {
  return elastic === true ? granted : amount
}

export function checkReserveRequest(request: ReserveRequest, now: number): void {
  checkClaims(request)
  for (const { counter, expiresAt } of request.claims) if (expiresAt <= now) throw expiredCounterError(counter)
}

export function checkClaims({ claims, minGrant, expiresAfterMs }: ReserveRequest): void {
  if (hasDuplicates(claims)) {
    throw new RangeError('Two claims of one reservation name the same counter. Merge them into one claim.')
  }
  for (const claim of claims) {
    checkAmount(claim.counter, claim.amount)
    checkAmount(claim.counter, claim.max)
  }
  if (minGrant !== undefined) checkAmount('minGrant', minGrant)
  if (!(expiresAfterMs > 0)) throw new RangeError(`expiresAfterMs is ${expiresAfterMs}; expected a number above 0.`)
}

/** Compares each pair, which is faster than a Set because a reservation has few claims. */
function hasDuplicates(claims: readonly Claim[]): boolean {
  return claims.some(({ counter }, index) => {
    for (let laterIndex = index + 1; laterIndex < claims.length; laterIndex++)
      if (claims[laterIndex]?.counter === counter) return true
    return false
  })
}

export function expiredCounterError(counter: string): RangeError {
  return new RangeError(
    `The counter ${counter} has expired according to the store's clock. Use the same clock for the store and the gateway.`,
  )
}

export function duplicateReservationError(): RangeError {
  return new RangeError('A reservation with this reservationId already exists. Use a unique id for each reservation.')
}

export function checkAmount(name: string, amount: number): void {
  if (Number.isSafeInteger(amount) && amount >= 0) return
  throw new RangeError(`A value for ${name} is ${amount}; expected an integer from 0 to 2^53 - 1.`)
}

/** Per tally, and in addition for the fields of what does not fit. The Lua and SQL code repeats the rules of `addAmount`. */
export const MAX_FIELDS = 4_096
export const MAX_OTHER_FIELDS = 64

/** An amount whose field does not fit is added to `<first word> (other)`, so that sums over the fields stay exact. */
export function addAmount(amounts: Map<string, number>, requestedField: string, amount: number): void {
  if (!Number.isSafeInteger(amount)) return
  const fits = amounts.has(requestedField) || amounts.size < MAX_FIELDS
  const space = requestedField.indexOf(' ')
  const field = fits ? requestedField : `${requestedField.slice(0, space)} ${OTHER}`
  if (!fits && (space < 0 || (!amounts.has(field) && amounts.size >= MAX_FIELDS + MAX_OTHER_FIELDS))) return
  const sum = (amounts.get(field) ?? 0) + amount
  amounts.set(field, Math.min(MAX_AMOUNT, Math.max(-MAX_AMOUNT, sum)))
}

/** Maximum number of entries and bytes. An entry takes 2 bytes per UTF-16 code unit of name and value, plus 128. */
export interface PoolLimit {
  readonly entries: number
  readonly bytes: number
}

export const checkPool: OptionCheck = optionsOf({ entries: integerFrom(0), bytes: integerFrom(0) }, [
  'entries',
  'bytes',
])

export type PoolSize = PoolLimit

export type ValuePool = 'durable' | 'owned' | 'expiring'

const OVERHEAD_BYTES = 128

export function bytesOf(key: string, value: string): number {
  return 2 * (key.length + value.length) + OVERHEAD_BYTES
}

export function poolOf({ ttlMs, quota }: WriteOptions): ValuePool {
  if (ttlMs !== undefined) return 'expiring'
  return quota === undefined ? 'durable' : 'owned'
}

/**
 * A share is the part of a pool that one quota, one log, or one kind of key such as `answer-claim:` occupies. The largest
 * share is the one with the most bytes, the share of the new entry among equally large ones, so that a write drops
 * entries of another share only if that share is larger. All stores use this order, in these names.
 */
export function shareOf(key: string, quota: Quota | undefined): string {
  return quota?.name ?? key.slice(0, key.indexOf(':') + 1)
}

export function logShareOf(log: string, quota: Quota | undefined): string {
  return quota === undefined ? `log:${log}` : `quota:${quota.name}`
}

/** What a pool counts, and how it finds and drops its oldest entries. */
export interface BoundedPool {
  readonly limit: PoolLimit
  readonly size: PoolSize
  sizeOfShare(share: string): PoolSize
  /** Returns undefined for an empty pool. */
  largestShare(newShare: string): string | undefined
  dropOldest(share: string): void
}

/** A value or log entry that is about to be written. */
export interface NewEntry {
  readonly share: string
  readonly bytes: number
  readonly quota: Quota | undefined
}

/** Returns true for an entry that does not fit even if its share and its pool are empty. */
export function isOversized(bytes: number, limit: PoolLimit, quota: Quota | undefined): boolean {
  return bytes > limit.bytes || (quota !== undefined && (bytes > quota.maxBytes || quota.maxEntries < 1))
}

/** Makes capacity in a pool of expiring values or of logs. First in the share, then in the largest shares of the pool. */
export function dropUntilFits(pool: BoundedPool, { share, bytes, quota }: NewEntry): void {
  while (quota !== undefined && wouldExceed(pool.sizeOfShare(share), bytes, quota.maxEntries, quota.maxBytes))
    pool.dropOldest(share)
  while (wouldExceed(pool.size, bytes, pool.limit.entries, pool.limit.bytes)) {
    const largest = pool.largestShare(share)
    if (largest === undefined) return
    pool.dropOldest(largest)
  }
}

/** False for an empty pool or share, so that a loop that drops entries ends. */
function wouldExceed({ entries, bytes }: PoolSize, addedBytes: number, maxEntries: number, maxBytes: number): boolean {
  return entries > 0 && (entries + 1 > maxEntries || bytes + addedBytes > maxBytes)
}

/**
 * Returns true for a value without an expiry that must not be written. A share may use at most as much as remains free,
 * which leaves capacity for other shares. A value that replaces a larger one always fits.
 * @param replacedBytes The size of the value that is replaced in the same share.
 */
export function exceedsQuota(
  pool: Pick<BoundedPool, 'limit' | 'size' | 'sizeOfShare'>,
  { share, bytes, quota }: NewEntry,
  replacedBytes: number | undefined,
): boolean {
  const more = { entries: replacedBytes === undefined ? 1 : 0, bytes: bytes - (replacedBytes ?? 0) }
  if (more.entries === 0 && more.bytes <= 0) return false
  const { limit } = pool
  const all = pool.size
  if (quota === undefined) return all.entries + more.entries > limit.entries || all.bytes + more.bytes > limit.bytes
  const own = pool.sizeOfShare(share)
  return (
    own.entries + more.entries > Math.min(quota.maxEntries, limit.entries - all.entries - more.entries) ||
    own.bytes + more.bytes > Math.min(quota.maxBytes, limit.bytes - all.bytes - more.bytes)
  )
}

export function limitOf({ maxEntries, maxBytes }: Quota): PoolLimit {
  return { entries: maxEntries, bytes: maxBytes }
}

interface StoreGuardOptions {
  readonly after: Runtime['after']
  readonly timeoutMs: number
}

const PROBE_INTERVAL_MS = 250

/**
 * If the storage fails or does not answer in time, a call rejects with `overloaded`. If the store answers no call
 * within one timeout period, further calls reject immediately until it answers a ping or an earlier call.
 */
export function guardStore(store: Store, { after, timeoutMs }: StoreGuardOptions): Store {
  if (store.local === true) return store
  let responseCount = 0
  let isUnresponsive = false

  function recordResponse(): void {
    responseCount += 1
    isUnresponsive = false
  }

  function probe(): void {
    attempt(() => store.ping()).catch(() => {
      after(PROBE_INTERVAL_MS, () => isUnresponsive && probe(), { isBackground: true })
    })
  }

  function markUnresponsive(): void {
    if (isUnresponsive) return
    isUnresponsive = true
    probe()
  }

  function guard<Result>(work: () => MaybePromise<Result>, onLateResult?: (result: Result) => void): Promise<Result> {
    if (isUnresponsive) return Promise.reject(storeError('does not answer'))
    return attempt(work, onLateResult)
  }

  function attempt<Result>(work: () => MaybePromise<Result>, onLateResult?: (result: Result) => void): Promise<Result> {
    return new Promise((resolve, reject) => {
      const responseCountAtStart = responseCount
      let hasTimedOut = false
      const cancel = after(timeoutMs, () => {
        hasTimedOut = true
        reject(storeError(`did not answer within ${timeoutMs} ms`))
        if (responseCount === responseCountAtStart) markUnresponsive()
      })
      const fail = (cause: unknown): void => {
        cancel()
        const isKnown = GatewayError.is(cause) || cause instanceof RangeError
        if (isKnown) recordResponse()
        reject(isKnown ? cause : storeError('failed', cause))
      }
      const succeed = (value: Result): void => {
        cancel()
        recordResponse()
        if (hasTimedOut) onLateResult?.(value)
        else resolve(value)
      }
      try {
        const result = work()
        if (isPromise(result)) result.then(succeed, fail)
        else succeed(result)
      } catch (error) {
        fail(error)
      }
    })
  }

  const release = (reservationId: string): void =>
    void attempt(() => store.settle({ reservationId, charges: [], tallies: [] })).catch(() => {})

  return {
    get: (key) => guard(() => store.get(key)),
    set: (key, value, options) => guard(() => store.set(key, value, options)),
    swap: (key, expected, value, options) => guard(() => store.swap(key, expected, value, options)),
    delete: (key) => guard(() => store.delete(key)),
    list: (prefix, options) => guard(() => store.list(prefix, options)),
    reserve: (request) =>
      guard(
        () => store.reserve(request),
        // A reservation without claims holds no amounts, and a repeated settlement may need it.
        ({ accepted }) => accepted && request.claims.length > 0 && release(request.reservationId),
      ),
    settle: (settlement) => guard(() => store.settle(settlement)),
    levels: (counters) => guard(() => store.levels(counters)),
    tallies: (names) => guard(() => store.tallies(names)),
    append: (log, entry) => guard(() => store.append(log, entry)),
    entries: (log, query) => guard(() => store.entries(log, query)),
    ping: () => guard(() => store.ping()),
    ...(store.warnings !== undefined && { warnings: () => guard(async () => (await store.warnings?.()) ?? []) }),
    close: () => store.close(),
  }
}
