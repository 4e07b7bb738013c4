import { GatewayError } from '../core/errors.ts'
import { chain, isPromise, lazy, type MaybePromise } from '../core/async.ts'
import type { Runtime } from '../core/ports.ts'
import type { Settlement, Store } from '../core/store.ts'
import type { AdminRecords, Budgets, Keys, RateLimits } from '../governance/admin-records.ts'
import { parseConfiguration } from '../governance/admin-input.ts'
import { createLedger, type Ledger } from '../governance/ledger.ts'
import { createKeyLookup, createSharedLimits } from '../governance/virtual-key.ts'
import type { FindKeyById } from '../pipeline/process-item.ts'
import type { FindKey } from '../pipeline/services.ts'

/** Keys, budgets and rate limits, and the ledger that enforces them. */
export interface Governance {
  readonly keys: Keys
  readonly budgets: Budgets
  readonly rateLimits: RateLimits
  /** The same records with the field names of the HTTP API. Their module is loaded lazily. */
  readonly adminRecords: () => Promise<AdminRecords>
  readonly ledger: Ledger
  readonly findKey: FindKey
  /** Finds a key by its id, for requests without a secret, such as batch items. Resolves with undefined for a deleted key. */
  readonly findKeyById: FindKeyById
}

export interface GovernanceDependencies {
  readonly store: Store
  readonly runtime: Runtime
  /** Maximum duration of a request, in milliseconds. */
  readonly maxRequestMs: number
  /** Called after each failed attempt to store the configured records. */
  readonly onFailure: (cause: unknown) => void
  /** Called when a settlement is dropped. Its request is not billed. */
  readonly onSettlementDropped?: (settlement: Settlement) => void
  /** How long keys, shared budgets and rate limits are cached, in milliseconds. @default 2,000 */
  readonly keyCacheMs?: number | undefined
  /** Serves requests of cached keys while the store fails, and bills them after its recovery. @default false */
  readonly allowsUnreservedRequests?: boolean
}

/** Maximum time between the deadline of a request and its settlement, in milliseconds. */
const MAX_SETTLE_MS = 60_000

/**
 * Validates the configuration synchronously, so that an invalid field throws at startup. Then stores the configured
 * records in the background. Key lookups wait until the records are stored. They reject with `overloaded` if storing
 * the records fails.
 */
export function createGovernance(configuration: unknown, dependencies: GovernanceDependencies): Governance {
  const { store, runtime } = dependencies
  const { now, uuid } = runtime
  const configured = parseConfiguration(configuration ?? {})
  const { keyCacheMs, allowsUnreservedRequests = false } = dependencies
  const cacheOptions = {
    servesStale: allowsUnreservedRequests,
    ...(keyCacheMs !== undefined && { cacheMs: keyCacheMs }),
  }
  const shared = createSharedLimits({ store, now, ...cacheOptions })
  const lookup = createKeyLookup({ store, now, ...cacheOptions })
  const load = lazy(async () => {
    const [{ applyConfiguration, createAdminRecords }, { createKeyring }] = await Promise.all([
      import('../governance/admin-records.ts'),
      import('../governance/keyring.ts'),
    ])
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
      settlements: {
        after: runtime.after,
        ...(dependencies.onSettlementDropped !== undefined && { onDropped: dependencies.onSettlementDropped }),
      },
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

/** Minimum delay between a failed attempt and the next one, in milliseconds. */
const RETRY_DELAY_MS = 1000

/**
 * Returns a function that runs `work` until it has succeeded once. Concurrent calls share one attempt. For one second
 * after a failure, calls reject without another attempt.
 */
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

/** Wraps methods with wire field names so that callers use camel-case names. Loads the methods on the first call. */
function inProcessApi<Api extends Methods<Api>>(
  load: () => Promise<Methods<Api>>,
  methodNames: Record<keyof Api, true>,
): Api {
  const method =
    (name: keyof Api) =>
    async (...parameters: never[]): Promise<unknown> => {
      const [methods, { callInProcess }] = await Promise.all([load(), import('../core/field-names.ts')])
      return callInProcess(parameters, (renamed) => methods[name](...(renamed as never[])))
    }
  return Object.fromEntries(Object.keys(methodNames).map((name) => [name, method(name as keyof Api)])) as Api
}
