import { GatewayError } from '../core/errors.ts'
import { chain, isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { lazy } from '../core/lazy.ts'
import type { Runtime, Settlement, Store } from '../core/ports.ts'
import type { Desks } from '../governance/desks.ts'
import { applyConfiguration, parseConfiguration } from '../governance/configuration.ts'
import { createKeyring } from '../governance/keyring.ts'
import { createLedger, type Ledger } from '../governance/ledger.ts'
import { createSharedLimits } from '../governance/shared-limits.ts'
import type { KeyById } from '../pipeline/answer-item.ts'
import type { FindKey } from '../pipeline/services.ts'

/** Who may do how much, and the desks at which that is decided. */
export interface Governance extends Desks {
  readonly ledger: Ledger
  readonly findKey: FindKey
  /** The key of an id, for work that goes on without its secret; undefined for one that was deleted. */
  readonly keyById: KeyById
}

export interface GovernanceParts {
  readonly store: Store
  readonly runtime: Runtime
  /** The longest that a request may take, in milliseconds. */
  readonly totalMs: number
  readonly onFailure: (cause: unknown) => void
  /** Notified of a settlement that is given up: its request is not billed. */
  readonly onSettlementDropped?: (settlement: Settlement) => void
  /** How long look-ups of keys and shared records are remembered, in milliseconds. @default 2,000 */
  readonly keyCacheMs?: number | undefined
  /** Serves known keys while the store fails, and bills them afterwards. @default false */
  readonly allowsUnreserved?: boolean
}

/** A request settles within this time after its deadline. */
const SETTLE_MS = 60_000

/**
 * Reads the configuration at once, so that a wrong field is an error at the start, and puts it in place before the
 * first key is looked up or shown. `onFailure` is called when that fails.
 */
export function createGovernance(configuration: unknown, parts: GovernanceParts): Governance {
  const { store, runtime } = parts
  const { now, uuid } = runtime
  const configured = parseConfiguration(configuration ?? {})
  const { keyCacheMs, allowsUnreserved = false } = parts
  const remembering = { keepsStale: allowsUnreserved, ...(keyCacheMs !== undefined && { cacheMs: keyCacheMs }) }
  const shared = createSharedLimits({ store, now, ...remembering })
  const keyring = createKeyring({ store, now, uuid, shared, ...remembering })
  const inPlace = startOnce(() => applyConfiguration(configured, { keyring, shared }), parts.onFailure, runtime.after)
  const starting = inPlace()
  if (isPromise(starting)) starting.catch(() => {})
  const desks = lazy(async () => {
    await inPlace()
    const { createDesks } = await import('../governance/desks.ts')
    return createDesks({ store, runtime, keyring, shared })
  })
  return {
    keys: onDemand(async () => (await desks()).keys, KEY_METHODS),
    budgets: onDemand(async () => (await desks()).budgets, RECORD_METHODS),
    rateLimits: onDemand(async () => (await desks()).rateLimits, RECORD_METHODS),
    ledger: createLedger({
      store,
      now,
      uuid,
      shared,
      lapsesAfterMs: parts.totalMs + SETTLE_MS,
      allowsUnreserved,
      settlements: {
        after: runtime.after,
        ...(parts.onSettlementDropped !== undefined && { onDropped: parts.onSettlementDropped }),
      },
    }),
    findKey: (secret) => chain(inPlace(), () => keyring.find(secret)),
    keyById: async (id) => {
      await inPlace()
      return orNothing(keyring.read(id))
    },
  }
}

async function orNothing<value>(reading: Promise<value>): Promise<value | undefined> {
  try {
    return await reading
  } catch (error) {
    if (GatewayError.is(error) && error.kind === 'not-found') return undefined
    throw error
  }
}

const REST_MS = 1000

/** Runs until it has succeeded once. After a failure, the next call that is at least a second later tries again. */
function startOnce(
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
      const forget = (): void => {
        running = undefined
      }
      after(REST_MS, forget, { isBackground: true })
      onFailure(cause)
      throw new GatewayError(
        'overloaded',
        'The configured keys, budgets and rate limits could not be put in place yet, so nothing is served. Try again later.',
        { retryAfterSeconds: 1, cause },
      )
    }
  }
  return () => (isDone ? undefined : (running ??= attempt()))
}

type Methods<desk> = { readonly [name in keyof desk]: (...given: never[]) => Promise<unknown> }

const RECORD_METHODS = { create: true, get: true, list: true, update: true, delete: true } as const
const KEY_METHODS = { ...RECORD_METHODS, usage: true, rateLimit: true, limits: true } as const

/** A desk whose code is loaded by the first call of a method, and only when the configuration is in place. */
function onDemand<desk extends Methods<desk>>(load: () => Promise<desk>, names: Record<keyof desk, true>): desk {
  const call =
    (name: keyof desk) =>
    async (...given: never[]): Promise<unknown> =>
      (await load())[name](...given)
  return Object.fromEntries(Object.keys(names).map((name) => [name, call(name as keyof desk)])) as desk
}
