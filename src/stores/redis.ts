import type { ResponseStore } from '../core/cache.ts'
import { checkFlag, checkOptions, expects, type OptionCheck, optionsOf, withDefaults } from '../core/check-options.ts'
import type { LogEntry, LogQuery, Store } from '../core/store.ts'
import {
  type BulkLimits,
  decodeText,
  encodeText,
  clientCheck,
  STORE_CHECKS,
  type CallOperation,
  createRemoteCounters,
  createRemoteValues,
  fieldOf,
  toList,
  toNumber,
  toText,
} from './durable-store.ts'
import { OPERATION_SCRIPTS } from './redis/counter-scripts.ts'
import { createShardedCounters } from './redis/sharded-counters.ts'
import { READ_SETTINGS, type RunScript } from './redis/value-scripts.ts'
import { createStoreClock, type StoreClock, withTime } from './store-rules.ts'
import { RESPONSE_CHECKS, createResponseStore, type ResponseStoreOptions } from './response-store.ts'

/** Options for `redisStore()`. */
export interface RedisStoreOptions {
  /** A connected client: ioredis, node-redis, or an HTTP client with the Upstash interface. The caller closes it. */
  readonly client: RedisClient
  /**
   * Prefix of all Redis keys, in braces unless `shardByOwner` distributes them: `{sluice}:`. Gateways with the same
   * prefix share keys, budgets and usage. @default 'sluice'
   */
  readonly prefix?: string | undefined
  /**
   * Distributes the limits of keys, and the shared budgets and rate limits, over the slots of a Redis Cluster. If
   * `false`, all data is in one slot, and each reservation or settlement is one call. See docs/stores.md. @default false
   */
  readonly shardByOwner?: boolean
  /** Limits on the data that requests write. @default 1,000,000 entries and 256 MiB each */
  readonly limits?: Partial<BulkLimits>
  /** Returns the time in milliseconds since 1970. @default the `runtime.now` of the gateway, otherwise the clock of the Redis server */
  readonly now?: () => number
}

export const REDIS_CHECKS: Readonly<Record<'client' | 'prefix' | 'now', OptionCheck>> = {
  client: clientCheck('a connected Redis client'),
  prefix: expects('a string', (value) => typeof value === 'string'),
  now: STORE_CHECKS.now,
}

const CHECK = optionsOf({ ...REDIS_CHECKS, limits: STORE_CHECKS.limits, shardByOwner: checkFlag }, ['client'])
const DEFAULT_LIMIT = { entries: 1_000_000, bytes: 256 * 1024 * 1024 }
const DEFAULT_LIMITS: BulkLimits = { owned: DEFAULT_LIMIT, expiring: DEFAULT_LIMIT, logs: DEFAULT_LIMIT }

/**
 * Creates a store in Redis 7 or newer, Valkey, or Redis Cluster. Lua scripts update counters atomically, so any number of
 * processes can share exact limits and budgets. Enable the append-only file, because without it a server restart loses
 * writes. Set `maxmemory-policy noeviction`, because eviction would remove keys and budgets.
 *
 * @example
 * const client = new Redis({ socketTimeout: 5_000 }) // ioredis, node-redis or Upstash
 * const gateway = createGateway({ providers: [openai()], store: redisStore({ client }) })
 */
export function redisStore(options: RedisStoreOptions): Store {
  checkOptions('redisStore', options, CHECK)
  const { client, prefix = 'sluice', shardByOwner = false } = options
  const { clock, useClock } = createStoreClock(options.now, () => undefined)
  const limits = withDefaults(DEFAULT_LIMITS, options.limits)
  const run = createRunScript(client, prefix, clock)
  const call: CallOperation = (operation, request) => run(OPERATION_SCRIPTS[operation], request)
  const values = createRemoteValues(call, limits)
  return {
    ...values,
    ...(shardByOwner ? createShardedCounters(run, limits) : createRemoteCounters(call, limits)),
    entries: (log, query) => readEntries(call, encodeText(log), query),
    useClock,
    ping: async () => void (await values.get('')),
    warnings: async () => toWarnings(await run(READ_SETTINGS, {})),
    close: async () => {},
  }
}

async function readEntries(
  call: CallOperation,
  log: string,
  { from, to, after = '', limit }: LogQuery,
): Promise<readonly LogEntry[]> {
  const range = { log, ...(from !== undefined && { from }), ...(to !== undefined && { to }) }
  const entries: LogEntry[] = []
  let cursor: string | undefined = /^\d{1,16}$/.test(after) ? String(Number(after)) : '0'
  while (cursor !== undefined && entries.length < limit) {
    const reply: unknown = await call('read_entries', { ...range, after: cursor, limit: limit - entries.length })
    entries.push(...toList(fieldOf(reply, 'entries')).map(toLogEntry))
    const next = fieldOf(reply, 'next')
    cursor = next === undefined ? undefined : toText(next)
  }
  return entries
}

function toLogEntry(entry: unknown): LogEntry {
  const [cursor, at, value] = toList(entry)
  return { cursor: toText(cursor), at: toNumber(at), value: decodeText(toText(value)) }
}

function toWarnings(settings: unknown): readonly string[] {
  const policy = toText(fieldOf(settings, 'policy'))
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

/** Options for `redisResponseStore()`. */
export interface RedisResponseStoreOptions
  extends ResponseStoreOptions, Pick<RedisStoreOptions, 'client' | 'prefix' | 'limits' | 'now'> {}

const CHECK_RESPONSES = optionsOf({ ...REDIS_CHECKS, ...RESPONSE_CHECKS, limits: STORE_CHECKS.limits }, ['client'])

/**
 * Creates a response store in Redis for the semantic cache of all processes with the same prefix.
 *
 * @example
 * const client = new Redis({ socketTimeout: 5_000 }) // ioredis
 * const cache = { responses: redisResponseStore({ client }), index: redisVectorIndex({ client }) }
 * const gateway = createGateway({ providers: [openai()], store: redisStore({ client }), cache })
 */
export function redisResponseStore(options: RedisResponseStoreOptions): ResponseStore {
  checkOptions('redisResponseStore', options, CHECK_RESPONSES)
  const { maxEntriesPerKey: _, maxBytesPerKey: __, ...storeOptions } = options
  return createResponseStore(redisStore(storeOptions), options, options.now)
}

/** ioredis: `new Redis()` or `new Cluster()`. Set `enableOfflineQueue: false` to report outages immediately. */
export interface IoredisClient {
  evalsha(sha: string, keyCount: number, ...keysAndArguments: string[]): Promise<unknown>
  eval(script: string, keyCount: number, ...keysAndArguments: string[]): Promise<unknown>
  /** Distinguishes this client from an Upstash client. */
  call(command: string): Promise<unknown>
}

/** Keys and arguments of a Lua script. */
export interface ScriptArguments {
  keys: string[]
  arguments: string[]
}

/** node-redis: `createClient()` or `createCluster()`. Set `disableOfflineQueue: true`. */
export interface NodeRedisClient {
  evalSha(sha: string, options: ScriptArguments): Promise<unknown>
  eval(script: string, options: ScriptArguments): Promise<unknown>
}

/** An Upstash client, or an HTTP client with the same interface. */
export interface UpstashClient {
  evalsha(sha: string, keys: string[], args: string[]): Promise<unknown>
  eval(script: string, keys: string[], args: string[]): Promise<unknown>
}

/** A connected Redis client: ioredis, node-redis or Upstash. */
export type RedisClient = IoredisClient | NodeRedisClient | UpstashClient

/** Scripts take and return JSON. Clients with the Upstash interface parse the returned JSON. */
export function createRunScript(client: RedisClient, prefix: string, clock: StoreClock<number | undefined>): RunScript {
  const send = createSend(client)
  /** The braces form a hash tag, from which a cluster derives the slot. */
  const baseOf = (owner: string | undefined): string =>
    owner === undefined ? `{${escapeTag(prefix)}}` : `${prefix}:{o:${escapeTag(owner)}}`
  return async (script, request, owner) => {
    const base = baseOf(owner)
    const argument = JSON.stringify(withTime(request, clock.now()))
    const sha = await script.sha
    let result: unknown
    try {
      result = await send('evalsha', sha, base, argument)
    } catch (error) {
      if (!(error instanceof Error && error.message.includes('NOSCRIPT'))) throw error
      result = await send('eval', script.text, base, argument)
    }
    return typeof result === 'string' ? JSON.parse(result) : result
  }
}

function escapeTag(name: string): string {
  return name.replaceAll('}', '%7D')
}

type Send = (command: 'evalsha' | 'eval', script: string, base: string, argument: string) => Promise<unknown>

/**
 * While a slot moves to another cluster node, a call with one nonexistent key goes to the new node, which lacks some
 * counters and would count from zero. A call with two such keys fails with TRYAGAIN until the move is complete.
 */
function keysOf(base: string): [string, string] {
  return [base, `${base}:slot`]
}

function createSend(client: RedisClient): Send {
  if ('evalSha' in client) {
    return (command, script, base, argument) =>
      client[command === 'eval' ? 'eval' : 'evalSha'](script, { keys: keysOf(base), arguments: [argument] })
  }
  if ('call' in client) {
    return (command, script, base, argument) => client[command](script, 2, ...keysOf(base), argument)
  }
  return (command, script, base, argument) => client[command](script, keysOf(base), [argument])
}
