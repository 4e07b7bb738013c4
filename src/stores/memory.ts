import { functionCheck, checkOptions, optionsOf, integerFrom } from '../core/option-checks.ts'
import type { Store } from '../core/store.ts'
import { createCounters, createTallies } from './memory/counters.ts'
import { createLogs } from './memory/logs.ts'
import { createValues } from './memory/values.ts'
import type { PoolLimit } from './store-rules.ts'

/** Limits of a memory store. */
export interface MemoryBounds {
  /**
   * Values with neither an expiry nor a quota: keys, budgets and rate limits. If the pool is full, a write fails with
   * `overloaded`.
   * @default 500,000 entries, 256 MiB
   */
  readonly durable: PoolLimit
  /**
   * Values without an expiry that count against a key's quota: message batches. A write fails with `quota-exceeded` if
   * the key would use more than its quota, or more than remains free for other keys.
   * @default 500,000 entries, 256 MiB
   */
  readonly owned: PoolLimit
  /**
   * Values with an expiry: contexts, recordings, answers. A full pool drops the least recently used value of its
   * largest share (all values of one kind that belong to one key), which protects the values of keys that use less.
   * @default 50,000 entries, 128 MiB
   */
  readonly expiring: PoolLimit
  /**
   * Maximum number of counters for limits and budgets. Above it, a reservation that needs another counter fails with
   * `overloaded`. @default 500,000
   */
  readonly counters: number
  /** Maximum number of open reservations. Further reservations fail with `overloaded`. @default 100,000 */
  readonly reservations: number
  /**
   * Maximum number of tallies (sums for reports and for amounts that budgets carry over) and their fields together. Above
   * it, the least recently updated tally is dropped. @default 500,000
   */
  readonly tallies: number
  /**
   * Log entries. A full pool drops the oldest entry of its largest share (one key, or one log for entries without a
   * quota). @default 100,000 entries and 64 MiB in total, 50,000 entries per log
   */
  readonly logs: PoolLimit & { readonly maxEntriesPerLog: number }
}

/** Options for `memoryStore()`. */
export interface MemoryStoreOptions extends Partial<MemoryBounds> {
  /** Returns the time in milliseconds since 1970. Use the same clock for the gateway. @default Date.now */
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

const pool = { entries: integerFrom(0), bytes: integerFrom(0) }
const checkPool = optionsOf(pool, ['entries', 'bytes'])
const CHECK = optionsOf({
  now: functionCheck('now()'),
  durable: checkPool,
  owned: checkPool,
  expiring: checkPool,
  counters: integerFrom(0),
  reservations: integerFrom(0),
  tallies: integerFrom(0),
  logs: optionsOf({ ...pool, maxEntriesPerLog: integerFrom(0) }, ['entries', 'bytes', 'maxEntriesPerLog']),
})

/**
 * Creates a store in the memory of this process. Limits and budgets apply to this process only, and a restart loses all
 * data. Each UTF-16 code unit counts as two bytes.
 */
export function memoryStore(options: MemoryStoreOptions = {}): Store {
  checkOptions('memoryStore', options, CHECK)
  const { now = Date.now, ...bounds } = options
  const limits = { ...DEFAULTS, ...bounds }
  const values = createValues(now, limits)
  const counters = createCounters(now, { counters: limits.counters, reservations: limits.reservations })
  const tallies = createTallies(now, limits.tallies)
  const logs = createLogs(now, limits.logs)
  const store: Store = {
    get: (key) => values.get(key),
    set: async (key, value, options) => values.set(key, value, options),
    swap: async (key, expected, value, options) => {
      if (values.get(key) !== expected) return false
      if (value === undefined) values.delete(key)
      else values.set(key, value, options)
      return true
    },
    delete: async (key) => values.delete(key),
    list: async (prefix, { after, limit }) => values.list(prefix, after, limit),
    reserve: (request) => counters.reserve(request),
    settle: ({ reservationId, charges, tallies: added, entries = [] }) => {
      if (!counters.settle(reservationId, charges)) return false
      for (const tally of added) tallies.add(tally)
      for (const entry of entries) {
        // An entry larger than its quota must not prevent the settlement.
        if (!logs.isOversized(entry.log, entry)) logs.append(entry.log, entry)
      }
      return true
    },
    levels: (names) => names.map((name) => counters.level(name)),
    tallies: (names) => names.map((name) => tallies.get(name)),
    append: (log, entry) => {
      for (const name of [log].flat()) logs.append(name, entry)
    },
    entries: async (log, query) => logs.entries(log, query),
    ping: async () => {},
    close: async () => {
      for (const collection of [values, counters, tallies, logs]) collection.clear()
    },
  }
  // Not enumerable, because a spread copy of the store may replace calls with asynchronous ones and is not local.
  return Object.defineProperty(store, 'local', { value: true })
}
