import { GatewayError, falseOr, integerFrom, type OptionCheck, optionsOf } from '../core/errors.ts'
import { chain, isPromise, lazy, type MaybePromise } from '../core/async.ts'
import type { VectorIndex } from '../core/cache.ts'
import type { Runtime } from '../core/ports.ts'
import type { Settlement, Store } from '../core/store.ts'
import type { AdminRecords, Budgets, Keys, RateLimits } from '../plugins/admin/admin-records.ts'
import { parseConfiguration } from '../plugins/admin/admin-input.ts'
import { createLedger, type Ledger } from '../governance/ledger.ts'
import { createKeyLookup, createSharedLimits } from '../governance/stored-records.ts'
import type { FindKeyById } from '../plugins/batches/process-item.ts'
import { createWriteContext } from './exchange.ts'
import type { FindKey, Turns } from './services.ts'
import type { Idempotency, IdempotencyOptions } from '../plugins/idempotency/idempotency.ts'
import { Recordings } from '../plugins/recordings/recordings.ts'
import { DetachedWork } from '../streams/shared-work.ts'

export interface Governance {
  readonly keys: Keys
  readonly budgets: Budgets
  readonly rateLimits: RateLimits
  /** With the field names of the HTTP API. */
  readonly adminRecords: () => Promise<AdminRecords>
  readonly ledger: Ledger
  readonly findKey: FindKey
  readonly findKeyById: FindKeyById
}

interface GovernanceDependencies {
  readonly store: Store
  readonly runtime: Runtime
  readonly maxRequestMs: number
  readonly onFailure: (cause: unknown) => void
  readonly onSettlementDropped: (settlement: Settlement) => void
  readonly keyCacheMs: number | undefined
  readonly allowsUnreservedRequests: boolean
}

/** Time that a reservation allows for the settlement after the deadline of its request, in milliseconds. */
const MAX_SETTLE_MS = 60_000

/** Validates the configuration synchronously, so that an invalid field throws at startup. */
export function createGovernance(configuration: unknown, dependencies: GovernanceDependencies): Governance {
  const { store, runtime, keyCacheMs, allowsUnreservedRequests } = dependencies
  const { now, uuid } = runtime
  const configured = parseConfiguration(configuration ?? {})
  const cacheOptions = { servesStale: allowsUnreservedRequests, cacheMs: keyCacheMs }
  const shared = createSharedLimits({ store, now, ...cacheOptions })
  const lookup = createKeyLookup({ store, now, ...cacheOptions })
  const load = lazy(async () => {
    const { applyConfiguration, createAdminRecords, createKeyring } = await import('../plugins/admin/admin-records.ts')
    const keyring = createKeyring({ store, now, uuid, shared, lookup })
    const records = createAdminRecords({ store, runtime, keyring, shared })
    return { records, apply: () => applyConfiguration(configured, { keyring, shared }) }
  })
  const hasRecords = Object.values(configured).some((records) => records.length > 0)
  const storeConfiguredRecords = async (): Promise<void> => {
    if (hasRecords) await (await load()).apply()
  }
  const whenConfigured = runUntilSuccess(storeConfiguredRecords, dependencies.onFailure, runtime.after)
  const firstAttempt = whenConfigured()
  if (isPromise(firstAttempt)) firstAttempt.catch(() => {})
  const adminRecords = async (): Promise<AdminRecords> => {
    await whenConfigured()
    return (await load()).records
  }
  return {
    keys: inProcessApi<Keys>(async () => (await adminRecords()).keys, KEY_METHODS),
    budgets: inProcessApi<Budgets>(async () => (await adminRecords()).budgets, RECORD_METHODS),
    rateLimits: inProcessApi<RateLimits>(async () => (await adminRecords()).rateLimits, RECORD_METHODS),
    adminRecords,
    ledger: createLedger({
      store,
      now,
      uuid,
      shared,
      expiresAfterMs: dependencies.maxRequestMs + MAX_SETTLE_MS,
      allowsUnreservedRequests,
      settlements: { after: runtime.after, onDropped: dependencies.onSettlementDropped },
    }),
    findKey: (secret) => chain(whenConfigured(), () => lookup.find(secret)),
    findKeyById: async (id) => {
      await whenConfigured()
      return ignoreNotFound(lookup.keys.read(id))
    },
  }
}

async function ignoreNotFound<Value>(lookup: Promise<Value>): Promise<Value | undefined> {
  try {
    return await lookup
  } catch (error) {
    if (GatewayError.is(error) && error.kind === 'not-found') return undefined
    throw error
  }
}

const RETRY_DELAY_MS = 1000

/** For one second after a failure, calls reject without another attempt. */
function runUntilSuccess(
  work: () => Promise<void>,
  onFailure: (cause: unknown) => void,
  after: Runtime['after'],
): () => MaybePromise<void> {
  let running: Promise<void> | undefined
  let isDone = false
  const attempt = async (): Promise<void> => {
    try {
      await work()
      isDone = true
    } catch (cause) {
      const allowRetry = (): void => {
        running = undefined
      }
      after(RETRY_DELAY_MS, allowRetry, { isBackground: true })
      onFailure(cause)
      throw new GatewayError(
        'overloaded',
        'The configured keys, budgets and rate limits are not stored yet, so requests are rejected. Retry later.',
        { retryAfterSeconds: 1, cause },
      )
    }
  }
  return () => (isDone ? undefined : (running ??= attempt()))
}

type Methods<Api> = { readonly [name in keyof Api]: (...parameters: never[]) => Promise<unknown> }

const RECORD_METHODS = { create: true, get: true, list: true, update: true, delete: true } as const
const KEY_METHODS = { ...RECORD_METHODS, usage: true, rateLimit: true, limits: true } as const

function inProcessApi<Api extends Methods<Api>>(
  load: () => Promise<Methods<Api>>,
  methodNames: Record<keyof Api, true>,
): Api {
  const method =
    (name: keyof Api) =>
    async (...parameters: never[]): Promise<unknown> => {
      const [methods, { callInProcess }] = await Promise.all([load(), import('../plugins/admin/admin-records.ts')])
      return callInProcess(parameters, (renamed) => methods[name](...(renamed as never[])))
    }
  return Object.fromEntries(Object.keys(methodNames).map((name) => [name, method(name as keyof Api)])) as Api
}

/** Options of recorded streams. See docs/streams.md. Sizes count two bytes per UTF-16 code unit of text. */
export interface StreamsOptions {
  /** Maximum time for which a finished stream can be replayed, in seconds. @default 3600 */
  readonly retentionSeconds?: number
  /** Maximum number of concurrent recordings. Further streams are served without a recording. @default 10_000 */
  readonly entries?: number
  /** Maximum size of all concurrent recordings, in bytes. @default 67_108_864 (64 MiB) */
  readonly bytes?: number
  /** Maximum size of one recording, in bytes. @default 8_388_608 (8 MiB) */
  readonly maxBytesPerStream?: number
}

const positiveInteger = integerFrom(1)
/** A year. */
const MAX_RETENTION_SECONDS = 366 * 24 * 3600

export const checkStreams: OptionCheck = falseOr(
  optionsOf(
    {
      retentionSeconds: integerFrom(1, MAX_RETENTION_SECONDS, 'seconds'),
      entries: positiveInteger,
      bytes: positiveInteger,
      maxBytesPerStream: positiveInteger,
    },
    [],
    'false or an object with retentionSeconds, entries, bytes and maxBytesPerStream',
  ),
)

export interface Replay {
  readonly recordings: Recordings
  readonly idempotency: Pick<Idempotency, 'claim' | 'flush'>
  readonly detached: DetachedWork
  close(): Promise<void>
}

export function createReplay(options: false | StreamsOptions | undefined, store: Store, runtime: Runtime): Replay {
  const { now, uuid, after } = runtime
  const recordings = new Recordings({
    ...(options === false ? { isEnabled: false } : options),
    store,
    now,
    after,
    uuid,
  })
  const idempotency = lazyIdempotency({ store, now, uuid, after })
  const detached = new DetachedWork({ after })
  return {
    recordings,
    idempotency,
    detached,
    close: async () => {
      await detached.close()
      await Promise.all([recordings.flush(), idempotency.flush()])
    },
  }
}

function lazyIdempotency(options: IdempotencyOptions): Replay['idempotency'] {
  let loaded: Idempotency | undefined
  const load = lazy(async () => {
    const { Idempotency } = await import('../plugins/idempotency/idempotency.ts')
    return (loaded = new Idempotency(options))
  })
  return {
    claim: async (request) => (await load()).claim(request),
    flush: async () => loaded?.flush(),
  }
}

export function lazyTurns(store: Store, runtime: Pick<Runtime, 'now'>): Turns {
  const load = lazy(async () => (await import('../plugins/stored-responses/turns.ts')).createTurns(store))
  return {
    recall: ({ turns: format }, key, { body, received }) =>
      format === undefined ? { body, received } : load().then((turns) => turns.recall(format, key, { body, received })),
    store: (answered, serialized) => {
      const { turns: format } = answered.format
      if (format === undefined || serialized === undefined) return undefined
      const turn = format.turnToStore(createWriteContext(answered, runtime), serialized)
      return turn === undefined ? undefined : load().then((turns) => turns.store(answered, format, turn))
    },
    find: async (key, id) => (await load()).find(key, id),
    findInput: async (key, id) => (await load()).findInput(key, id),
    findProvider: async (key, id) => (await load()).findProvider(key, id),
    storeProvider: async (key, ids, provider) => (await load()).storeProvider(key, ids, provider),
    setUnsettled: async (key, id, isUnsettled) => (await load()).setUnsettled(key, id, isUnsettled),
    isUnsettled: async (key, id) => (await load()).isUnsettled(key, id),
    delete: async (key, id) => (await load()).delete(key, id),
  }
}

type WarningSource = Pick<Store | VectorIndex, 'warnings'>

/** The function is called for each request, so that creating a gateway does not read the warnings. */
export function createWarningLogger(
  sources: readonly (WarningSource | undefined)[],
  report: (warning: string) => void,
): () => void {
  let isLogged = !sources.some((source) => source?.warnings !== undefined)
  const logWarnings = async (): Promise<void> => {
    try {
      const warnings = await Promise.all(sources.map((source) => source?.warnings?.() ?? []))
      for (const warning of new Set(warnings.flat())) report(warning)
    } catch {
      isLogged = false
    }
  }
  return () => {
    if (isLogged) return
    isLogged = true
    void logWarnings()
  }
}
