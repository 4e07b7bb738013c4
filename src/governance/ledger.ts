import type { GatewayError } from '../core/errors.ts'
import { chain, isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { nano } from '../core/money.ts'
import { periodOf } from '../core/period.ts'
import type { Charge, Claim, ReserveRequest, ReserveResult, SettledEntry, Settlement, Store } from '../core/ports.ts'
import { claimsFor, countable, outputFor, recountFor, type Wanted } from './claims.ts'
import { UNLIMITED } from './field-schema.ts'
import type { Forecast } from './forecast.ts'
import { createKeyWindows, type KeyWindows } from './key-windows.ts'
import { forgottenAt, type Limit } from './limits-in-force.ts'
import { rateStatus } from './rate-status.ts'
import { refusal } from './refusal.ts'
import type { Quote, RateStatus, Recount, Reservation, Used } from './reservation.ts'
import { createSettlements, type SettlementsOptions } from './settlements.ts'
import type { SharedLimits } from './shared-limits.ts'
import { talliesOf } from './usage-tally.ts'
import type { VirtualKey } from './virtual-key.ts'

/** Who may use how much: takes places and money in advance and settles what was really used. */
export interface Ledger {
  /**
   * Takes one request, the prompt's tokens and the worst case's money of every limit of the key, in one atomic step.
   * Where that does not fit, the prompt is counted more exactly, if it can be, and the step is repeated. Throws `rate-limited` or `budget-exceeded`, and then nothing is taken; rejects when the store fails.
   * A request that failed later is settled with zeros: it keeps its place in the request limits (it was served an
   * upstream call or the attempt of one), and gets back tokens and money. Settling rejects when the store does not
   * take it; it is then tried again by later settlements.
   */
  reserve(key: VirtualKey, quote: Quote): MaybePromise<Reservation>
  /** What `X-RateLimit-*` say where nothing was reserved; without a valid key both limits are 0. */
  status(key: VirtualKey | undefined): MaybePromise<RateStatus>
  /** What `reserve` would say at this moment; takes nothing. */
  forecast(key: VirtualKey, quote: Quote): Promise<Forecast>
  /** Tries once more the settlements that the store did not take; resolves to how many are left. */
  retry(): Promise<number>
}

export interface LedgerOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly shared: SharedLimits
  /** How long amounts stay held when nobody settles, in milliseconds; longer than any request. @default 600,000 */
  readonly lapsesAfterMs?: number
  /** Sends settlements that the store did not take again. @default only later settlements send them */
  readonly settlements?: SettlementsOptions
}

const LAPSE_MS = 600_000

export function createLedger(options: LedgerOptions): Ledger {
  const { store, now, uuid, shared, lapsesAfterMs = LAPSE_MS } = options
  const settlements = createSettlements(store, options.settlements)
  const windowsOf = createKeyWindows(shared)

  function reserve(key: VirtualKey, quote: Quote): MaybePromise<Reservation> {
    return chain(attempt(key, quote, undefined), (outcome) =>
      'reservation' in outcome ? outcome.reservation : reserveCounted(key, outcome),
    )
  }

  /** Repeats the step with exact counts, until nothing more can be counted. */
  async function reserveCounted(key: VirtualKey, refused: Refused): Promise<Reservation> {
    let places: RateStatus | undefined
    for (let { recount, refusal: failure } = refused; ;) {
      if (recount === undefined) throw failure
      if (recount.asksUpstream) places ??= await takePlaces(key)
      const outcome = await attempt(key, await recount.run(), places)
      if ('reservation' in outcome) return outcome.reservation
      recount = outcome.recount
      failure = outcome.refusal
    }
  }

  /** One atomic step. `places` are given where the places of the request limits are taken already. */
  function attempt(key: VirtualKey, quote: Quote, places: RateStatus | undefined): MaybePromise<Outcome> {
    const at = now()
    return chain(windowsOf(key, at), (windows) => {
      const inForce = windows.limits
      const limits = places === undefined ? inForce : inForce.filter(({ kind }) => kind !== 'requests')
      const wanted = claimsFor(limits, quote)
      const claims = withSpares(wanted, windows)
      const request = { ticket: uuid(), claims, least: wanted.least, lapsesAfterMs }
      return chain(take(request), (result) =>
        outcomeOf({ quote, places, at, windows, limits, wanted, ticket: request.ticket, result }),
      )
    })
  }

  function outcomeOf(step: Step): Outcome {
    const { quote, places, at, wanted, result } = step
    const { limits: claimed, worst, tokens } = wanted
    // Claims beyond the limits are those of spare counters, which exist for budgets only; budgets are last.
    const refused = result.accepted ? undefined : (claimed[result.refused] ?? claimed.at(-1))
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
    { quote, windows, limits, wanted, ticket }: Step,
    { rate, granted }: { readonly rate: RateStatus; readonly granted: number },
  ): Reservation {
    const settlementFor = (used: Used, entries: readonly SettledEntry[] = []): Settlement =>
      settlement({ ticket, windows, limits, used: checked(used, granted), entries })
    let settling: { readonly done: MaybePromise<void> } | undefined
    return {
      rate,
      quote,
      outputTokens: outputFor(wanted, quote, granted),
      settlement: settlementFor,
      settle: (used, entries) => (settling ??= { done: settlements.settle(settlementFor(used, entries)) }).done,
    }
  }

  /** Takes a place of each request limit for good: the upstream is asked even if the request is refused afterwards. */
  async function takePlaces(key: VirtualKey): Promise<RateStatus> {
    const at = now()
    const limits = (await windowsOf(key, at)).limits.filter(({ kind }) => kind === 'requests')
    if (limits.length === 0) return rateStatus([], [], { now: at, refused: undefined })
    const { claims } = claimsFor(limits, NO_PROMPT)
    const ticket = uuid()
    const result = await take({ ticket, claims, lapsesAfterMs })
    const refused = result.accepted ? undefined : limits[result.refused]
    const rate = rateStatus(limits, result.levels, { now: at, refused })
    if (refused !== undefined) throw refusal(refused, { rate, now: at, tokens: 0 })
    const charges = claims.map(({ counter, amount, expiresAt }) => ({ counter, amount, expiresAt }))
    await settlements.settle({ ticket, charges, tallies: [] })
    return rate
  }

  /** A step that failed on the way back may have happened: what it took is given back at once, not after the lapse. */
  function take(request: ReserveRequest): MaybePromise<ReserveResult> {
    const giveBack = (error: unknown): never => {
      const given = store.settle({ ticket: request.ticket, charges: [], tallies: [] })
      if (isPromise(given)) given.catch(() => {})
      throw error
    }
    const result = store.reserve(request)
    return isPromise(result) ? result.catch(giveBack) : result
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
  }
}

/** A step that took nothing. */
interface Refused {
  readonly refusal: GatewayError
  readonly recount: Recount | undefined
}

/** A step that took everything, or nothing. */
type Outcome = { readonly reservation: Reservation } | Refused

interface Step {
  readonly quote: Quote
  readonly places: RateStatus | undefined
  readonly at: number
  readonly windows: KeyWindows
  readonly limits: readonly Limit[]
  readonly wanted: Wanted
  readonly ticket: string
  readonly result: ReserveResult
}

const NO_PROMPT: Quote = { promptTokens: 0, outputTokens: 0, cost: () => nano(0) }

/** A budget whose window changes while this request runs finds its money held in the new window too. */
function withSpares({ claims, worst }: Wanted, { spares }: KeyWindows): readonly Claim[] {
  if (worst === 0) return claims
  const all = [...claims]
  for (const { counter, expiresAt, isHeld } of spares) {
    if (isHeld) all.push({ counter, max: UNLIMITED, expiresAt, amount: worst, elastic: true })
  }
  return all
}

interface Settled {
  readonly ticket: string
  /** Those of the moment when the places were taken. */
  readonly windows: KeyWindows
  readonly limits: readonly Limit[]
  readonly used: Used
  readonly entries: readonly SettledEntry[]
}

function settlement({ ticket, windows, limits, used, entries }: Settled): Settlement {
  const tokens = countable(used.promptTokens + used.completionTokens)
  const amounts = { requests: 1, tokens, budget: used.billed }
  const charges: Charge[] = []
  for (const { counter, kind, every, period } of limits) {
    const amount = amounts[kind]
    if (amount > 0) charges.push({ counter, amount, expiresAt: forgottenAt(every, period) })
  }
  if (used.billed > 0) {
    for (const { counter, expiresAt } of windows.spares) charges.push({ counter, amount: used.billed, expiresAt })
  }
  return { ticket, charges, tallies: talliesOf(windows.tallies, used), entries }
}

/** Whatever an upstream's numbers lead to, the books get whole numbers of 0 and more; money that is no number is what was held. */
function checked(used: Used, held: number): Used {
  return {
    promptTokens: orElse(used.promptTokens, 0),
    completionTokens: orElse(used.completionTokens, 0),
    savedTokens: Number.isSafeInteger(used.savedTokens) ? used.savedTokens : 0,
    theoretical: nano(orElse(used.theoretical, 0)),
    actual: nano(orElse(used.actual, 0)),
    billed: nano(orElse(used.billed, held)),
    model: used.model,
  }
}

function orElse(amount: number, otherwise: number): number {
  return Number.isFinite(amount) ? countable(amount) : otherwise
}
