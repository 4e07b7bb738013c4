import { functionCheck, checkOptions, optionsOf, integerFrom, withDefaults } from '../core/check-options.ts'
import { quotaExceededError, type Store, type WriteOptions } from '../core/store.ts'
import { ExpiryQueue, OrderedKeys, Pool, type PoolEntry, storeFullError } from './memory/collections.ts'
import { createTallies, MemoryCounters } from './memory/counters.ts'
import { MemoryLogs } from './memory/logs.ts'
import {
  type BoundedPool,
  bytesOf,
  checkPool,
  createStoreClock,
  dropUntilFits,
  exceedsQuota,
  isOversized,
  type PoolLimit,
  poolOf,
  shareOf,
  type StoreClock,
  type ValuePool,
} from './store-rules.ts'

/** Limits of a memory store. */
export interface MemoryBounds {
  /**
   * Values with neither an expiry nor a quota, such as keys. A write that exceeds the limit fails with `overloaded`.
   * @default 500,000 entries, 256 MiB
   */
  readonly durable: PoolLimit
  /**
   * Values without an expiry that count against a key's quota, such as message batches. A write fails with
   * `quota-exceeded` if the key would use more than its quota, or more than remains free for other keys.
   * @default 500,000 entries, 256 MiB
   */
  readonly owned: PoolLimit
  /**
   * Values with an expiry, such as recordings. A full pool drops the least recently used values of its largest share
   * (all values of one kind that belong to one key, or to no key), which protects the values of keys that use less.
   * @default 50,000 entries, 128 MiB
   */
  readonly expiring: PoolLimit
  /**
   * Maximum number of counters for limits and budgets. Above it, a call that needs another counter fails with
   * `overloaded`. @default 500,000
   */
  readonly counters: number
  /**
   * Maximum number of unsettled reservations, including expired ones for two hours. Further reservations fail with
   * `overloaded`. @default 100,000
   */
  readonly reservations: number
  /**
   * Maximum number of tallies (sums for reports and budgets) and their fields together. Above it, the least recently
   * updated tallies are dropped. @default 500,000
   */
  readonly tallies: number
  /**
   * Log entries. A full pool drops the oldest entries of its largest share (all entries of one kind that belong to one
   * key, or one log for entries without a quota). `maxEntriesPerLog` applies to the entries without a quota.
   * @default 100,000 entries and 64 MiB in total, 50,000 entries per log
   */
  readonly logs: PoolLimit & { readonly maxEntriesPerLog: number }
}

/** Options for `memoryStore()`. */
export interface MemoryStoreOptions extends Partial<MemoryBounds> {
  /** Returns the time in milliseconds since 1970. @default the `runtime.now` of the gateway, otherwise Date.now */
  readonly now?: () => number
}

const MIB = 1024 * 1024

const DEFAULTS: MemoryBounds = {
  durable: { entries: 500_000, bytes: 256 * MIB },
  owned: { entries: 500_000, bytes: 256 * MIB },
  expiring: { entries: 50_000, bytes: 128 * MIB },
  counters: 500_000,
  reservations: 100_000,
  tallies: 500_000,
  logs: { entries: 100_000, bytes: 64 * MIB, maxEntriesPerLog: 50_000 },
}

const CHECK = optionsOf({
  now: functionCheck('now()'),
  durable: checkPool,
  owned: checkPool,
  expiring: checkPool,
  counters: integerFrom(0),
  reservations: integerFrom(0),
  tallies: integerFrom(0),
  logs: optionsOf({ entries: integerFrom(0), bytes: integerFrom(0), maxEntriesPerLog: integerFrom(0) }, [
    'entries',
    'bytes',
    'maxEntriesPerLog',
  ]),
})

/**
 * Creates a store in the memory of this process. Limits and budgets apply to this process only, and a restart loses all
 * data.
 *
 * @example
 * const gateway = createGateway({ providers: [openai()], store: memoryStore() })
 */
export function memoryStore(options: MemoryStoreOptions = {}): Store {
  checkOptions('memoryStore', options, CHECK)
  const { now: ownClock, ...bounds } = options
  const { clock, useClock } = createStoreClock(ownClock, Date.now)
  const limits = withDefaults(DEFAULTS, bounds)
  const createState = () => ({
    values: createValues(clock, limits),
    counters: new MemoryCounters(clock, limits),
    tallies: createTallies(clock, limits.tallies),
    logs: new MemoryLogs(clock, limits.logs),
  })
  let state = createState()
  const store: Store = {
    get: (key) => state.values.get(key),
    set: async (key, value, options) => state.values.set(key, value, options),
    swap: async (key, expected, value, options) => {
      const { values } = state
      if (values.get(key) !== expected) return false
      if (value === undefined) values.delete(key)
      else values.set(key, value, options)
      return true
    },
    delete: async (key) => state.values.delete(key),
    list: async (prefix, { after, limit }) => state.values.list(prefix, after, limit),
    reserve: (request) => state.counters.reserve(request),
    settle: ({ reservationId, charges, tallies, entries = [] }) => {
      if (!state.counters.settle(reservationId, charges)) return false
      for (const tally of tallies) state.tallies.add(tally)
      for (const entry of entries) {
        // An entry larger than its quota must not prevent the settlement.
        if (!state.logs.isOversized(entry.log, entry)) state.logs.append(entry.log, entry)
      }
      return true
    },
    levels: (names) => names.map((name) => state.counters.level(name)),
    tallies: (names) => names.map((name) => state.tallies.get(name)),
    append: (log, entry) => {
      const names = [log].flat()
      const isOversized = names.some((name) => state.logs.isOversized(name, entry))
      if (isOversized && entry.quota !== undefined) throw quotaExceededError(entry.quota)
      for (const name of names) state.logs.append(name, entry)
    },
    entries: async (log, query) => state.logs.entries(log, query),
    useClock,
    ping: async () => {},
    close: async () => void (state = createState()),
  }
  // Not enumerable, so that a spread copy, which may replace methods with asynchronous ones, is not local.
  return Object.defineProperty(store, 'local', { value: true })
}

function createValues(clock: StoreClock, limits: Readonly<Record<ValuePool, PoolLimit>>) {
  const pools = {
    durable: new Pool(limits.durable),
    owned: new Pool(limits.owned),
    expiring: new Pool(limits.expiring),
  }
  const { expiring } = pools
  const entries = new Map<string, PoolEntry>()
  const keys = new OrderedKeys()
  const expiries = new ExpiryQueue<PoolEntry>()

  function remove(entry: PoolEntry): void {
    entries.delete(entry.key)
    entry.pool.remove(entry)
    expiries.schedule(entry, Infinity)
    keys.remove(entry.key)
  }

  const droppable: BoundedPool = {
    limit: expiring.limit,
    size: expiring.size,
    sizeOfShare: (share) => expiring.sizeOfShare(share),
    largestShare: (newShare) => expiring.largestShare(newShare),
    dropOldest: (share) => {
      const oldest = expiring.oldestOf(share)
      if (oldest !== undefined) remove(oldest)
    },
  }

  function find(key: string): PoolEntry | undefined {
    expiries.forEachDue(clock.now(), remove)
    return entries.get(key)
  }

  function get(key: string): string | undefined {
    const entry = find(key)
    if (entry?.pool === expiring) expiring.markUsed(entry)
    return entry?.value
  }

  function set(key: string, value: string, options: WriteOptions = {}): void {
    const { ttlMs, quota, mayExceedQuota = false } = options
    const old = find(key)
    const pool = pools[poolOf(options)]
    const entry: PoolEntry = {
      key,
      value,
      bytes: bytesOf(key, value),
      pool,
      share: shareOf(key, quota),
      dueAt: Infinity,
      position: 0,
    }
    const { share, bytes } = entry
    const isTooLargeForAll = bytes > pool.limit.bytes
    const fullError = () => (quota === undefined || isTooLargeForAll ? storeFullError() : quotaExceededError(quota))
    if (pool === expiring) {
      if (isOversized(bytes, pool.limit, quota)) throw fullError()
    } else if (!mayExceedQuota) {
      const replacedBytes = old?.pool === pool && old.share === share ? old.bytes : undefined
      if (exceedsQuota(pool, { share, bytes, quota }, replacedBytes)) throw fullError()
    }
    if (old !== undefined) remove(old)
    if (ttlMs !== undefined && !(ttlMs > 0)) return
    if (pool === expiring) dropUntilFits(droppable, { share, bytes, quota })
    entries.set(key, entry)
    pool.put(entry)
    keys.add(key)
    if (ttlMs !== undefined) expiries.schedule(entry, clock.now() + ttlMs)
  }

  function deleteValue(key: string): boolean {
    const entry = find(key)
    if (entry !== undefined) remove(entry)
    return entry !== undefined
  }

  function list(prefix: string, after: string | undefined, limit: number): readonly string[] {
    expiries.forEachDue(clock.now(), remove)
    return keys.list(prefix, after, limit)
  }

  return { get, set, delete: deleteValue, list }
}
