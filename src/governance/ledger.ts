import { GatewayError } from '../core/errors.ts'
import { chain, isPromise, lazy, type MaybePromise } from '../core/async.ts'
import { toNanoUsd } from '../core/money.ts'
import {
  periodOf,
  type ReserveRequest,
  type ReserveResult,
  type SettledEntry,
  type Settlement,
  type Store,
} from '../core/store.ts'
import { claimsFor, coveredOutputTokens, rateStatus, recountFor, limitError, type LimitClaims } from './claims.ts'
import type { Forecast } from './forecast.ts'
import { type CarryOver, createKeyWindows, type KeyWindows, type Limit, type SharedLimits } from './limits.ts'
import type { Quote, RateStatus, Recount, Reservation, Used, WaitForStore } from './reservation.ts'
import { checkedUsage, createSettlements, settlementOf, type SettlementsOptions } from './settlements.ts'
import type { VirtualKey } from './virtual-key.ts'

/** Enforces limits: reserves requests, tokens and money in advance, and settles the actual usage. */
export interface Ledger {
  /**
   * Reserves one request, the prompt's tokens and the worst-case cost from every limit of the key, in one atomic step.
   * If a limit does not allow this, the prompt is counted more exactly, if possible, and the step is repeated. Throws
   * `rate-limited` or `budget-exceeded` without reserving anything. Rejects when the store fails.
   *
   * A request that fails after its reservation is settled with zeros. It counts against the request limits, because it
   * may have called an upstream, and its tokens and money are released.
   *
   * @param wait Limits the time that the store may take. @default no limit
   */
  reserve(key: VirtualKey, quote: Quote, wait?: WaitForStore): MaybePromise<Reservation>
  /** Returns the values of `X-RateLimit-*` without reserving. Without a valid key, both limits are 0. */
  status(key: VirtualKey | undefined): MaybePromise<RateStatus>
  /** Computes the result of `reserve` without reserving. */
  forecast(key: VirtualKey, quote: Quote): Promise<Forecast>
  /** Retries failed settlements. Resolves with the number of settlements that failed again. */
  retry(): Promise<number>
  unsettled(): Unsettled
}

export interface LedgerOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly shared: SharedLimits
  /** Time after which an unsettled reservation expires. Must exceed the longest request. @default 600,000 */
  readonly expiresAfterMs?: number
  readonly settlements?: SettlementsOptions
  /** Serves requests while the store fails, and bills them after its recovery. @default false */
  readonly allowsUnreserved?: boolean
}

const EXPIRES_AFTER_MS = 600_000

/** Returns ids that are unique across processes: a random prefix and a counter, which cost less than a UUID each. */
function uniqueIds(uuid: () => string): () => string {
  let prefix: string | undefined
  let count = 0
  return () => `${(prefix ??= uuid())}.${(count += 1)}`
}

export function createLedger(options: LedgerOptions): Ledger {
  const { store, now, shared, expiresAfterMs = EXPIRES_AFTER_MS, allowsUnreserved = false } = options
  const settlements = createSettlements(store, options.settlements)
  const nextId = uniqueIds(options.uuid)
  let carryOver: CarryOver | undefined
  /** Loaded on the first request of a key with a budget. */
  const loadCarryOver = lazy(async () => {
    const { createCarryOver } = await import('./forecast.ts')
    return (carryOver = createCarryOver(store, allowsUnreserved))
  })
  const windowsOf = createKeyWindows(shared, (limits, at) => {
    if (!limits.some(({ kind }) => kind === 'budget')) return { limits, isFinal: true }
    return carryOver?.(limits, at) ?? loadCarryOver().then((loaded) => loaded(limits, at))
  })

  function reserve(key: VirtualKey, quote: Quote, wait: WaitForStore = (call) => call): MaybePromise<Reservation> {
    return chain(attempt({ key, quote, wait }), (outcome) =>
      'reservation' in outcome ? outcome.reservation : reserveCounted(key, outcome, wait),
    )
  }

  /** Repeats the reservation with more exact quotes until a quote is accepted or no recount remains. */
  async function reserveCounted(key: VirtualKey, refused: Refused, wait: WaitForStore): Promise<Reservation> {
    let reserved: RateStatus | undefined
    for (let { recount, refusal: failure } = refused; ;) {
      if (recount === undefined) throw failure
      if (recount.callsUpstream) reserved ??= await reserveRequests(key, wait)
      const outcome = await attempt({ key, quote: await recount.run(), requests: reserved, wait })
      if ('reservation' in outcome) return outcome.reservation
      recount = outcome.recount
      failure = outcome.refusal
    }
  }

  function attempt({ key, quote, requests, wait }: Attempt): MaybePromise<Outcome> {
    const at = now()
    return chain(wait(windowsOf(key, at)), (windows) => {
      const limits = requests === undefined ? windows.limits : windows.limits.filter(({ kind }) => kind !== 'requests')
      const limitClaims = claimsFor(limits, quote)
      const { claims, minGrant } = limitClaims
      const request = { reservationId: nextId(), claims, least: minGrant, expiresAfterMs }
      const step = { quote, requests, at, windows, limits, limitClaims, reservationId: request.reservationId }
      const outcome = chain(reserveInStore(request, wait), (result) => outcomeOf(step, result))
      return allowsUnreserved && isPromise(outcome) ? outcome.catch((error) => unreserved(step, error)) : outcome
    })
  }

  /** Returns a reservation that is not in the store, because the store failed. The settlement creates it. */
  function unreserved(step: Step, error: unknown): Outcome {
    if (!GatewayError.is(error) || error.kind !== 'overloaded') throw error
    const opening = { reservationId: nextId(), claims: [], expiresAfterMs }
    const { limits: claimed, worstCost: worst } = step.limitClaims
    const rate = rateStatus(claimed, [], { now: step.at, refused: undefined })
    const reservation = reservationOf(
      { ...step, reservationId: opening.reservationId },
      { rate, granted: worst, opening },
    )
    return { reservation }
  }

  function outcomeOf(step: Step, result: ReserveResult): Outcome {
    const { quote, requests, at, limitClaims } = step
    const { limits: claimed, worstCost: worst, tokens } = limitClaims
    // The request is rejected even if a store returns an index out of range.
    const refused = result.accepted ? undefined : (claimed[result.refused] ?? claimed.at(-1))
    const found = rateStatus(claimed, result.levels, { now: at, refused })
    const rate = requests === undefined || refused?.kind === 'tokens' ? found : requests
    if (!result.accepted && refused !== undefined) {
      const recount = recountFor(refused, result.levels[result.refused] ?? 0, quote)
      return { refusal: limitError(refused, { rate, now: at, tokens }), recount }
    }
    const granted = result.accepted && result.granted < worst ? result.granted : worst
    return { reservation: reservationOf(step, { rate, granted }) }
  }

  function reservationOf(
    { quote, windows, limits, limitClaims, reservationId }: Step,
    { rate, granted, opening }: Granted,
  ): Reservation {
    const settlementFor = (used: Used, entries: readonly SettledEntry[] = []): Settlement =>
      settlementOf({ reservationId, windows, limits, used: checkedUsage(used, granted), entries })
    let settling: { readonly done: MaybePromise<void> } | undefined
    return {
      isReserved: opening === undefined,
      rate,
      quote,
      outputTokens: coveredOutputTokens(limitClaims, quote, granted),
      settlement: settlementFor,
      settle: (used, entries) =>
        (settling ??= { done: settlements.settle(settlementFor(used, entries), opening) }).done,
    }
  }

  /** Takes one request from each request limit, because the exact count calls an upstream. */
  async function reserveRequests(key: VirtualKey, wait: WaitForStore): Promise<RateStatus> {
    const at = now()
    const limits = (await wait(windowsOf(key, at))).limits.filter(({ kind }) => kind === 'requests')
    if (limits.length === 0) return rateStatus([], [], { now: at, refused: undefined })
    const { claims } = claimsFor(limits, NO_PROMPT)
    const reservationId = nextId()
    const result = await reserveInStore({ reservationId, claims, expiresAfterMs }, wait)
    const refused = result.accepted ? undefined : limits[result.refused]
    const rate = rateStatus(limits, result.levels, { now: at, refused })
    if (refused !== undefined) throw limitError(refused, { rate, now: at, tokens: 0 })
    const charges = claims.map(({ counter, amount, expiresAt }) => ({ counter, amount, expiresAt }))
    await settlements.settle({ reservationId, charges, tallies: [] })
    return rate
  }

  /**
   * A store call that times out may still make the reservation. The reservation is released when the call ends.
   * Otherwise, its amounts would remain reserved until it expires.
   */
  function reserveInStore(request: ReserveRequest, wait: WaitForStore): MaybePromise<ReserveResult> {
    const result = store.reserve(request)
    return isPromise(result) ? waitOrRelease(result, request.reservationId, wait) : result
  }

  async function waitOrRelease(
    result: Promise<ReserveResult>,
    reservationId: string,
    wait: WaitForStore,
  ): Promise<ReserveResult> {
    try {
      return await wait(result)
    } catch (error) {
      void releaseAfter(result, reservationId)
      throw error
    }
  }

  async function releaseAfter(result: Promise<ReserveResult>, reservationId: string): Promise<void> {
    await Promise.allSettled([result])
    try {
      await store.settle({ reservationId, charges: [], tallies: [] })
    } catch {}
  }

  function status(key: VirtualKey | undefined): MaybePromise<RateStatus> {
    const at = now()
    if (key === undefined) return { limit: 0, remaining: 0, resetAt: periodOf(at, '1h').end }
    return chain(windowsOf(key, at), (windows) => {
      const limits = windows.limits.filter((limit) => limit.kind === 'requests')
      const found = limits.length === 0 ? [] : store.levels(limits.map((limit) => limit.counter))
      return chain(found, (levels) => {
        const used = levels.map((level) => level.spent + level.held)
        return rateStatus(limits, used, { now: at, refused: undefined })
      })
    })
  }

  return {
    reserve,
    status,
    forecast: async (key, quote) => {
      const { forecast } = await import('./forecast.ts')
      return forecast(key, quote, { store, shared, now })
    },
    retry: settlements.retry,
    unsettled: () => ({ waiting: settlements.waiting(), dropped: settlements.dropped() }),
  }
}

/** Settlements that the store did not accept. */
export interface Unsettled {
  readonly waiting: number
  readonly dropped: number
}

interface Attempt {
  readonly key: VirtualKey
  readonly quote: Quote
  /** Status of the request limits. Set once a request has been taken from them. */
  readonly requests?: RateStatus | undefined
  readonly wait: WaitForStore
}

interface Granted {
  readonly rate: RateStatus
  readonly granted: number
  /** Opens the reservation of a request that the store did not reserve. */
  readonly opening?: ReserveRequest
}

interface Refused {
  readonly refusal: GatewayError
  readonly recount: Recount | undefined
}

type Outcome = { readonly reservation: Reservation } | Refused

interface Step {
  readonly quote: Quote
  readonly requests: RateStatus | undefined
  readonly at: number
  readonly windows: KeyWindows
  readonly limits: readonly Limit[]
  readonly limitClaims: LimitClaims
  readonly reservationId: string
}

const NO_PROMPT: Quote = { promptTokens: 0, outputTokens: 0, cost: () => toNanoUsd(0) }
