import type { OptionCheck } from '../../core/check-options.ts'
import { GatewayError } from '../../core/errors.ts'
import { lazyMethods } from '../../core/lazy-methods.ts'
import { chain, isPromise, lazy, type MaybePromise } from '../../core/async.ts'
import type { Runtime } from '../../core/ports.ts'
import type { Settlement, Store } from '../../core/store.ts'
import type { AdminRecords, InProcessRecords } from './admin-records.ts'
import { parseConfiguration } from './admin-input.ts'
import type { BudgetObserver } from '../../governance/budget-observer.ts'
import { Ledger } from '../../governance/ledger.ts'
import { createSharedLimits, KeyLookup } from '../../governance/stored-records.ts'
import type { FindKey, FindKeyById } from '../../kernel/services.ts'

export interface Governance extends InProcessRecords {
  /** Returns undefined if the configuration is stored. */
  readonly whenConfigured: () => MaybePromise<void>
  readonly adminRecords: () => Promise<AdminRecords>
  readonly ledger: Ledger
  readonly findKey: FindKey
  readonly findKeyById: FindKeyById
}

/** The plugin of customers, which checks and stores those of the configuration. */
interface ConfiguredCustomers<Customer> {
  readonly check: OptionCheck
  readonly apply: (customers: readonly Customer[]) => Promise<void>
}

interface GovernanceDependencies<Customer> {
  readonly customers: ConfiguredCustomers<Customer>
  readonly store: Store
  readonly runtime: Runtime
  readonly maxRequestMs: number
  readonly onFailure: (cause: unknown) => void
  readonly onSettlementDropped: (settlement: Settlement) => void
  readonly keyCacheMs: number | undefined
  readonly allowsUnreservedRequests: boolean
  readonly budgetObserver?: (() => MaybePromise<BudgetObserver | undefined>) | undefined
  readonly loadRecords?: (() => MaybePromise<unknown>) | undefined
}

/** Time that a reservation allows for the settlement after the deadline of its request, in milliseconds. */
const MAX_SETTLE_MS = 60_000

/** Validates the configuration synchronously, so that an invalid field throws at startup. */
export function createGovernance<Customer extends { readonly id: string }>(
  configuration: unknown,
  dependencies: GovernanceDependencies<Customer>,
): Governance {
  const { store, runtime, keyCacheMs, allowsUnreservedRequests } = dependencies
  const { now, uuid } = runtime
  const configured = parseConfiguration<Customer>(configuration ?? {}, dependencies.customers.check)
  const cacheOptions = { servesStale: allowsUnreservedRequests, cacheMs: keyCacheMs }
  const shared = createSharedLimits({ store, now, ...cacheOptions })
  const lookup = new KeyLookup({ store, now, ...cacheOptions })
  const load = lazy(async () => {
    const { applyConfiguration, createAdminRecords, createKeyring, inProcessRecords } =
      await import('./admin-records.ts')
    const keyring = createKeyring({ store, now, uuid, shared, lookup })
    const records = createAdminRecords({ store, runtime, keyring, shared })
    return {
      records,
      inProcess: inProcessRecords(records),
      apply: () => applyConfiguration(configured, { keyring, shared }),
    }
  })
  const hasRecords = Object.values(configured).some((records) => records.length > 0)
  const storeConfiguredRecords = async (): Promise<void> => {
    if (!hasRecords) return
    if (configured.customers.length > 0) await dependencies.customers.apply(configured.customers)
    await (await load()).apply()
  }
  const whenConfigured = runUntilSuccess(storeConfiguredRecords, dependencies.onFailure, runtime.after)
  const firstAttempt = whenConfigured()
  if (isPromise(firstAttempt)) firstAttempt.catch(() => {})
  const loaded = async (): ReturnType<typeof load> => {
    await whenConfigured()
    return load()
  }
  const inProcess = async (): Promise<InProcessRecords> => (await loaded()).inProcess
  return {
    whenConfigured,
    keys: lazyMethods(async () => (await inProcess()).keys, KEY_METHODS),
    budgets: lazyMethods(async () => (await inProcess()).budgets, RECORD_METHODS),
    rateLimits: lazyMethods(async () => (await inProcess()).rateLimits, RECORD_METHODS),
    adminRecords: async () => (await loaded()).records,
    ledger: new Ledger({
      store,
      now,
      uuid,
      shared,
      expiresAfterMs: dependencies.maxRequestMs + MAX_SETTLE_MS,
      allowsUnreservedRequests,
      budgetObserver: dependencies.budgetObserver,
      loadRecords: dependencies.loadRecords,
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

const RECORD_METHODS = { create: true, get: true, list: true, update: true, delete: true } as const
const KEY_METHODS = { ...RECORD_METHODS, usage: true, rateLimit: true, limits: true } as const
