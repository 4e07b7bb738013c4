import { GatewayError } from '../core/errors.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { nano } from '../core/money.ts'
import { periodOf } from '../core/period.ts'
import type { ReserveRequest, ReserveResult, SettledEntry, Settlement, Store } from '../core/store.ts'
import { createCarryOver } from './carried.ts'
import { claimsFor, outputFor, recountFor, type Wanted } from './claims.ts'
import type { Forecast } from './forecast.ts'
import { createKeyWindows, type KeyWindows } from './key-windows.ts'
import type { Limit } from './limits-in-force.ts'
import { rateStatus } from './rate-status.ts'
import { refusal } from './refusal.ts'
import type { Quote, RateStatus, Recount, Reservation, Used, WaitForStore } from './reservation.ts'
import { checkedUsage, settlementOf } from './settlement-of.ts'
import { createSettlements, type SettlementsOptions } from './settlements.ts'
import type { SharedLimits } from './shared-limits.ts'
import type { VirtualKey } from './virtual-key.ts'

/** Who may use how much: takes places and money in advance and settles what was really used. */
export interface Ledger {
  /**
   * Takes one request, the prompt's tokens and the worst case's money of every limit of the key, in one atomic step.
   * Where that does not fit, the prompt is counted more exactly, if it can be, and the step is repeated. Throws `rate-limited` or `budget-exceeded`, and then nothing is taken; rejects when the store fails.
   * A request that failed later is settled with zeros: it keeps its place in the request limits (it was served an
   * upstream call or the attempt of one), and gets back tokens and money. Settling rejects when the store does not
   * take it; it is then tried again by later settlements.
   *
   * @param wait Limits how long a call of the store is waited for. @default without a limit
   */
  reserve(key: VirtualKey, quote: Quote, wait?: WaitForStore): MaybePromise<Reservation>
  /** What `X-RateLimit-*` say where nothing was reserved; without a valid key both limits are 0. */
  status(key: VirtualKey | undefined): MaybePromise<RateStatus>
  /** What `reserve` would say at this moment; takes nothing. */
  forecast(key: VirtualKey, quote: Quote): Promise<Forecast>
  /** Tries once more the settlements that the store did not take; resolves to how many are left. */
  retry(): Promise<number>
  /** Settlements that wait for the store, and those that were given up. */
  unsettled(): Unsettled
}

export interface LedgerOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly shared: SharedLimits
  /** Time in milliseconds after which the held amounts of a reservation that is not settled expire. Longer than any request. @default 600,000 */
  readonly expiresAfterMs?: number
  /** Sends settlements that the store did not take again. @default only later settlements send them */
  readonly settlements?: SettlementsOptions
  /** Serves requests whose reservation the store did not take, and bills them when it is back. @default false */
  readonly allowsUnreserved?: boolean
}

const LAPSE_MS = 600_000

export function createLedger(options: LedgerOptions): Ledger {
  const { store, now, uuid, shared, expiresAfterMs = LAPSE_MS, allowsUnreserved = false } = options
  const settlements = createSettlements(store, options.settlements)
  const windowsOf = createKeyWindows(shared, createCarryOver(store, allowsUnreserved))

  function reserve(key: VirtualKey, quote: Quote, wait: WaitForStore = (given) => given): MaybePromise<Reservation> {
    return chain(attempt({ key, quote, wait }), (outcome) =>
      'reservation' in outcome ? outcome.reservation : reserveCounted(key, outcome, wait),
    )
  }

  /** Repeats the step with exact counts, until nothing more can be counted. */
  async function reserveCounted(key: VirtualKey, refused: Refused, wait: WaitForStore): Promise<Reservation> {
    let places: RateStatus | undefined
    for (let { recount, refusal: failure } = refused; ;) {
      if (recount === undefined) throw failure
      if (recount.asksUpstream) places ??= await takePlaces(key, wait)
      const outcome = await attempt({ key, quote: await recount.run(), places, wait })
      if ('reservation' in outcome) return outcome.reservation
      recount = outcome.recount
      failure = outcome.refusal
    }
  }

  function attempt({ key, quote, places, wait }: Attempt): MaybePromise<Outcome> {
    const at = now()
    return chain(wait(windowsOf(key, at)), (windows) => {
      const inForce = windows.limits
      const limits = places === undefined ? inForce : inForce.filter(({ kind }) => kind !== 'requests')
      const wanted = claimsFor(limits, quote)
      const request = { reservationId: uuid(), claims: wanted.claims, least: wanted.least, expiresAfterMs }
      const step = { quote, places, at, windows, limits, wanted, reservationId: request.reservationId }
      const taken = chain(take(request, wait), (result) => outcomeOf(step, result))
      return allowsUnreserved && isPromise(taken) ? taken.catch((error) => unreserved(step, error)) : taken
    })
  }

  /** The store failed: the request is served without a reservation, and billed under a reservationId that is opened later. */
  function unreserved(step: Step, error: unknown): Outcome {
    if (!GatewayError.is(error) || error.kind !== 'overloaded') throw error
    const opening = { reservationId: uuid(), claims: [], expiresAfterMs }
    const { limits: claimed, worst } = step.wanted
    const rate = rateStatus(claimed, [], { now: step.at, refused: undefined })
    const reservation = reservationOf(
      { ...step, reservationId: opening.reservationId },
      { rate, granted: worst, opening },
    )
    return { reservation }
  }

  function outcomeOf(step: Step, result: ReserveResult): Outcome {
    const { quote, places, at, wanted } = step
    const { limits: claimed, worst, tokens } = wanted
    const refused = result.accepted ? undefined : claimed[result.refused]
    const found = rateStatus(claimed, result.levels, { now: at, refused })
    const rate = places === undefined || refused?.kind === 'tokens' ? found : places
    if (!result.accepted && refused !== undefined) {
      const recount = recountFor(refused, result.levels[result.refused] ?? 0, quote)
      return { refusal: refusal(refused, { rate, now: at, tokens }), recount }
    }
    const granted = result.accepted && result.granted < worst ? result.granted : worst
    return { reservation: reservationOf(step, { rate, granted }) }
  }

  function reservationOf(
    { quote, windows, limits, wanted, reservationId }: Step,
    { rate, granted, opening }: Granted,
  ): Reservation {
    const settlementFor = (used: Used, entries: readonly SettledEntry[] = []): Settlement =>
      settlementOf({ reservationId, windows, limits, used: checkedUsage(used, granted), entries })
    let settling: { readonly done: MaybePromise<void> } | undefined
    return {
      isReserved: opening === undefined,
      rate,
      quote,
      outputTokens: outputFor(wanted, quote, granted),
      settlement: settlementFor,
      settle: (used, entries) =>
        (settling ??= { done: settlements.settle(settlementFor(used, entries), opening) }).done,
    }
  }

  /** Takes a place of each request limit and does not return it: the upstream is asked even if the request is refused afterwards. */
  async function takePlaces(key: VirtualKey, wait: WaitForStore): Promise<RateStatus> {
    const at = now()
    const limits = (await wait(windowsOf(key, at))).limits.filter(({ kind }) => kind === 'requests')
    if (limits.length === 0) return rateStatus([], [], { now: at, refused: undefined })
    const { claims } = claimsFor(limits, NO_PROMPT)
    const reservationId = uuid()
    const result = await take({ reservationId, claims, expiresAfterMs }, wait)
    const refused = result.accepted ? undefined : limits[result.refused]
    const rate = rateStatus(limits, result.levels, { now: at, refused })
    if (refused !== undefined) throw refusal(refused, { rate, now: at, tokens: 0 })
    const charges = claims.map(({ counter, amount, expiresAt }) => ({ counter, amount, expiresAt }))
    await settlements.settle({ reservationId, charges, tallies: [] })
    return rate
  }

  /**
   * A step that failed on the way back may have happened, and one that takes too long may still happen: what it took is
   * given back at once, not when it expires.
   */
  function take(request: ReserveRequest, wait: WaitForStore): MaybePromise<ReserveResult> {
    const result = store.reserve(request)
    return isPromise(result) ? waitOrGiveBack(result, request.reservationId, wait) : result
  }

  async function waitOrGiveBack(
    result: Promise<ReserveResult>,
    reservationId: string,
    wait: WaitForStore,
  ): Promise<ReserveResult> {
    try {
      return await wait(result)
    } catch (error) {
      void giveBackAfter(result, reservationId)
      throw error
    }
  }

  async function giveBackAfter(result: Promise<ReserveResult>, reservationId: string): Promise<void> {
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

/** Settlements that the store did not take. */
export interface Unsettled {
  readonly waiting: number
  readonly dropped: number
}

/** One atomic step to make. */
interface Attempt {
  readonly key: VirtualKey
  readonly quote: Quote
  /** Present where the places of the request limits are taken already. */
  readonly places?: RateStatus | undefined
  readonly wait: WaitForStore
}

interface Granted {
  readonly rate: RateStatus
  readonly granted: number
  /** Opens the reservation of a request that the store did not reserve. */
  readonly opening?: ReserveRequest
}

/** A step that took nothing. */
interface Refused {
  readonly refusal: GatewayError
  readonly recount: Recount | undefined
}

/** What became of a step: it took everything, or nothing. */
type Outcome = { readonly reservation: Reservation } | Refused

interface Step {
  readonly quote: Quote
  readonly places: RateStatus | undefined
  readonly at: number
  readonly windows: KeyWindows
  readonly limits: readonly Limit[]
  readonly wanted: Wanted
  readonly reservationId: string
}

const NO_PROMPT: Quote = { promptTokens: 0, outputTokens: 0, cost: () => nano(0) }
