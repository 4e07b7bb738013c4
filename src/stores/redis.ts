import { checkOptions, expects, oneOf, optionsOf, type OptionCheck } from '../core/option-checks.ts'
import type { Store } from '../core/store.ts'
import { STORE_CHECKS, type BulkLimits } from './bounds.ts'
import { createContext, createRunScript, type RedisClient } from './redis/client.ts'
import { createCounters } from './redis/counters.ts'
import { READ_SETTINGS } from './redis/scripts.ts'
import { createValues } from './redis/values.ts'
import { fieldOf, textOf } from './wire.ts'

/** Options of `redisStore()`. */
export interface RedisStoreOptions {
  /** A connected client: ioredis, node-redis, or an HTTP client with the interface of Upstash. The caller closes it. */
  readonly client: RedisClient
  /** The start of all keys. Gateways with the same prefix share keys, budgets and usage. @default 'sluice' */
  readonly prefix?: string
  /**
   * Gives the limits of each key, and each shared record, a slot of its own in a Redis Cluster. `false` uses one slot
   * for all data: each step is then one call, even on a cluster. See docs/stores.md.
   * @default false
   */
  readonly shardByOwner?: boolean
  /** Limits of batches, recordings and audit records; keys and budgets have none. @default 1,000,000 entries, 256 MiB each */
  readonly limits?: Partial<BulkLimits>
  /** Milliseconds since 1970. @default the clock of the Redis server, one for all processes */
  readonly now?: () => number
}

/** Checks of options that the store, the index and the answer store share. */
export const REDIS_CHECKS: Readonly<Record<'client' | 'prefix' | 'now', OptionCheck>> = {
  client: expects('a connected client of Redis', (value) => typeof value === 'object' || typeof value === 'function'),
  prefix: expects('a text', (value) => typeof value === 'string'),
  now: STORE_CHECKS.now,
}

const CHECK = optionsOf({ ...REDIS_CHECKS, limits: STORE_CHECKS.limits, shardByOwner: oneOf(true, false) }, ['client'])
const LIMIT = { entries: 1_000_000, bytes: 256 * 1024 * 1024 }

/**
 * Creates a store in Redis 7 or newer, Valkey, or Redis Cluster. Each step is one Lua script, so any number of
 * processes share limits and budgets exactly. Durability is that of the server: enable its append-only file. The server
 * must not evict keys: set `maxmemory-policy noeviction`.
 */
export function redisStore(options: RedisStoreOptions): Store {
  checkOptions('redisStore', options, CHECK)
  const { client, prefix = 'sluice', shardByOwner = false, now } = options
  const limits: BulkLimits = { owned: LIMIT, expiring: LIMIT, logs: LIMIT, ...options.limits }
  const context = createContext({ runScript: createRunScript(client), prefix, limits, isSharded: shardByOwner, now })
  const values = createValues(context)
  const counters = createCounters(context)
  return {
    get: values.get,
    set: values.set,
    swap: values.swap,
    delete: values.delete,
    list: (prefix, { after, limit }) => values.list(prefix, after, limit),
    reserve: counters.reserve,
    settle: counters.settle,
    levels: counters.levels,
    tallies: counters.tallies,
    append: values.append,
    entries: values.entries,
    ping: async () => void (await values.get('')),
    warnings: async () => warningsOf(await context.run(READ_SETTINGS, undefined, {})),
    close: async () => {},
  }
}

function warningsOf(settings: unknown): readonly string[] {
  const policy = textOf(fieldOf(settings, 'policy'))
  const warnings: string[] = []
  if (fieldOf(settings, 'appendOnly') === '0') {
    warnings.push(
      'The append-only file of Redis is off: a restart of Redis loses all writes since its last snapshot, budgets and usage included. Set "appendonly yes".',
    )
  }
  if (policy !== '' && policy !== 'noeviction') {
    warnings.push(
      `The maxmemory-policy of Redis is ${policy}: Redis may evict keys and budgets to make room. Set "maxmemory-policy noeviction".`,
    )
  }
  return warnings
}
