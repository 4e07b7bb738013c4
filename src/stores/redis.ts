import type { AnswerStore } from '../core/cache-ports.ts'
import { checkOptions, expects, oneOf, type OptionCheck, optionsOf } from '../core/option-checks.ts'
import { quotaExceeded, type Store, type WriteOptions } from '../core/store.ts'
import {
  type BulkLimits,
  decodeText,
  encodeText,
  entryRequest,
  fieldOf,
  listOf,
  numberOf,
  STORE_CHECKS,
  storeFullError,
  textOf,
  valueRequest,
} from './durable-store.ts'
import { createContext, createRunScript, type RedisClient, type RedisContext } from './redis/client.ts'
import { createCounters } from './redis/counters.ts'
import { APPEND, ENTRIES, GET, LIST, READ_SETTINGS, WRITE } from './redis/value-scripts.ts'
import { ANSWER_CHECKS, createStoredAnswers, type StoredAnswersOptions } from './stored-answers.ts'

/** Options for `redisStore()`. */
export interface RedisStoreOptions {
  /** A connected client: ioredis, node-redis, or an HTTP client with the Upstash interface. The caller closes it. */
  readonly client: RedisClient
  /** Prefix of all Redis keys. Gateways with the same prefix share keys, budgets and usage. @default 'sluice' */
  readonly prefix?: string
  /**
   * Puts each key's limits, and each shared budget or rate limit, in a separate slot of a Redis Cluster. If `false`,
   * all data is in one slot, and each step is one call. See docs/stores.md. @default false
   */
  readonly shardByOwner?: boolean
  /**
   * Limits on batches, recordings and audit records. Keys and budgets are unlimited.
   * @default 1,000,000 entries and 256 MiB each
   */
  readonly limits?: Partial<BulkLimits>
  /** Returns the time in milliseconds since 1970. @default the clock of the Redis server */
  readonly now?: () => number
}

export const REDIS_CHECKS: Readonly<Record<'client' | 'prefix' | 'now', OptionCheck>> = {
  client: expects('a connected Redis client', (value) => typeof value === 'object' || typeof value === 'function'),
  prefix: expects('a string', (value) => typeof value === 'string'),
  now: STORE_CHECKS.now,
}

const CHECK = optionsOf({ ...REDIS_CHECKS, limits: STORE_CHECKS.limits, shardByOwner: oneOf(true, false) }, ['client'])
const LIMIT = { entries: 1_000_000, bytes: 256 * 1024 * 1024 }

/**
 * Creates a store in Redis 7 or newer, Valkey, or Redis Cluster. Each step is one Lua script, so any number of
 * processes can share exact limits and budgets. Enable the append-only file, because without it a server restart loses
 * writes. Set `maxmemory-policy noeviction`, because eviction would remove keys and budgets.
 */
export function redisStore(options: RedisStoreOptions): Store {
  checkOptions('redisStore', options, CHECK)
  const { client, prefix = 'sluice', shardByOwner = false, now } = options
  const limits: BulkLimits = { owned: LIMIT, expiring: LIMIT, logs: LIMIT, ...options.limits }
  const context = createContext({ runScript: createRunScript(client), prefix, limits, isSharded: shardByOwner, now })
  const values = createValues(context)
  const counters = createCounters(context)
  return {
    ...values,
    ...counters,
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
      'The Redis append-only file is off: a restart of Redis loses all writes since its last snapshot, including budgets and usage. Set "appendonly yes".',
    )
  }
  if (policy !== '' && policy !== 'noeviction') {
    warnings.push(
      `The Redis maxmemory-policy is ${policy}: Redis may evict keys and budgets. Set "maxmemory-policy noeviction".`,
    )
  }
  return warnings
}

type Values = Pick<Store, 'get' | 'set' | 'swap' | 'delete' | 'list' | 'append' | 'entries'>

function createValues({ run, limits }: RedisContext): Values {
  async function write(
    key: string,
    value: string | undefined,
    options: WriteOptions = {},
    expectation: object = {},
  ): Promise<unknown> {
    const reply = await run(WRITE, undefined, { ...expectation, ...valueRequest(key, value, options, limits) })
    if (fieldOf(reply, 'full') === true)
      throw options.quota === undefined ? storeFullError() : quotaExceeded(options.quota)
    return reply
  }

  return {
    get: async (key) => {
      const value = fieldOf(await run(GET, undefined, { key: encodeText(key) }), 'value')
      return value === undefined ? undefined : decodeText(textOf(value))
    },
    set: async (key, value, options) => void (await write(key, value, options)),
    swap: async (key, expected, value, options) => {
      const expectation = expected === undefined ? {} : { expected: encodeText(expected) }
      return fieldOf(await write(key, value, options, { isSwap: true, ...expectation }), 'done') === true
    },
    delete: async (key) => fieldOf(await write(key, undefined), 'found') === true,
    list: async (prefix, { after, limit }) => {
      const start = { prefix: encodeText(prefix), ...(after !== undefined && { after: encodeText(after) }) }
      const reply = await run(LIST, undefined, { ...start, limit })
      return listOf(fieldOf(reply, 'keys')).map((key) => decodeText(textOf(key)))
    },
    append: async (log, entry) => {
      const entries = [log].flat().map((name) => entryRequest({ ...entry, log: name }, limits))
      await run(APPEND, undefined, { limits, entries })
    },
    entries: async (log, { from, to, after = '', limit }) => {
      const reply = await run(ENTRIES, undefined, {
        log: encodeText(log),
        // An unknown cursor starts from the beginning.
        after: /^\d{1,16}$/.test(after) ? String(Number(after)) : '0',
        limit,
        ...(from !== undefined && { from }),
        ...(to !== undefined && { to }),
      })
      return listOf(fieldOf(reply, 'entries')).map((entry) => {
        const [cursor, at, value] = listOf(entry)
        return { cursor: textOf(cursor), at: numberOf(at), value: decodeText(textOf(value)) }
      })
    },
  }
}

/** Options for `redisAnswerStore()`. */
export interface RedisAnswerStoreOptions
  extends StoredAnswersOptions, Pick<RedisStoreOptions, 'client' | 'prefix' | 'limits' | 'now'> {}

const CHECK_ANSWERS = optionsOf({ ...REDIS_CHECKS, ...ANSWER_CHECKS, limits: STORE_CHECKS.limits }, ['client'])

/** Creates an answer store in Redis for the semantic cache of all processes with the same prefix. */
export function redisAnswerStore(options: RedisAnswerStoreOptions): AnswerStore {
  checkOptions('redisAnswerStore', options, CHECK_ANSWERS)
  const { maxEntriesPerKey: _, maxBytesPerKey: __, ...store } = options
  return createStoredAnswers(redisStore(store), options, options.now ?? Date.now)
}
