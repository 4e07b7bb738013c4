import { chain, isPromise, lazy, type MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import {
  periodOf,
  type ReserveRequest,
  type ReserveResult,
  type SettledEntry,
  type Settlement,
  type Store,
} from '../core/store.ts'
import type { Forecast } from './balances.ts'
import type { BudgetObserver } from './budget-observer.ts'
import type { Caller } from './caller.ts'
import { type Limit, type RateStatus, rateStatus } from './limits.ts'
import type { Outcome, Rejection } from './recount.ts'
import {
  claimsFor,
  coveredOutputTokens,
  type LimitClaims,
  type Quote,
  recountFor,
  type RequestUsage,
  type Reservation,
  type SettlementRecord,
  type WaitForStore,
} from './reservation.ts'
import {
  sanitizeUsage,
  Settlements,
  buildSettlement,
  type SettlementCounts,
  type SettlementsOptions,
} from './settlements.ts'
import type { SharedLimits } from './stored-records.ts'
import { UsageRows } from './usage-rows.ts'
import { type CarryOver, createWindows, type LevelContext, needsCarryOver, type Windows } from './windows.ts'

interface LedgerOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly shared: SharedLimits
  /** Milliseconds after which an unsettled reservation expires. Must exceed the longest request. */
  readonly expiresAfterMs: number
  readonly settlements?: SettlementsOptions
  /** True to serve requests while the store fails, and to bill them when it recovers. @default false */
  readonly allowsUnreservedRequests?: boolean
  /** Called for each request with a budget. @default none */
  readonly budgetObserver?: (() => MaybePromise<BudgetObserver | undefined>) | undefined
  /** Loads what settlements append. Each reservation waits for it. Never rejects. @default nothing */
  readonly loadRecords?: (() => MaybePromise<unknown>) | undefined
}

const loadErrors = lazy(() => import('./limit-error.ts'))
const loadRecount = lazy(() => import('./recount.ts'))

type LimitedCaller = Pick<Caller, 'key' | 'levels' | 'context'>

export class Ledger {
  readonly #options: LedgerOptions
  readonly #store: Store
  readonly #now: () => number
  readonly #shared: SharedLimits
  readonly #expiresAfterMs: number
  readonly #allowsUnreservedRequests: boolean
  readonly #settlements: Settlements
  readonly levelContext: LevelContext
  readonly #windowsOf: ReturnType<typeof createWindows>
  readonly #loadCarryOver: () => Promise<CarryOver>
  #carryOver: CarryOver | undefined
  #idPrefix: string | undefined
  #idCount = 0
  readonly #usageRows = new UsageRows()

  constructor(options: LedgerOptions) {
    this.#options = options
    const { store, now, shared, expiresAfterMs, allowsUnreservedRequests = false } = options
    this.#store = store
    this.#now = now
    this.#shared = shared
    this.#expiresAfterMs = expiresAfterMs
    this.#allowsUnreservedRequests = allowsUnreservedRequests
    this.#settlements = new Settlements(store, options.settlements)
    this.#loadCarryOver = lazy(async () => {
      const { createCarryOver } = await import('./balances.ts')
      return (this.#carryOver = createCarryOver(store, { expiresAfterMs, toleratesFailure: allowsUnreservedRequests }))
    })
    const carryOver: CarryOver = (limits, at) => {
      if (!limits.some(needsCarryOver)) return { limits, isFinal: true }
      return this.#carryOver?.(limits, at) ?? this.#loadCarryOver().then((loaded) => loaded(limits, at))
    }
    this.levelContext = { carryOver, maxRequestMs: expiresAfterMs }
    this.#windowsOf = createWindows(shared, this.levelContext)
  }

  /** The random prefix makes ids unique across processes. A UUID per id would be slower. */
  #nextId(): string {
    return `${(this.#idPrefix ??= this.#options.uuid())}.${(this.#idCount += 1)}`
  }

  /** A failed request still counts against the request limits, because it may have called an upstream. */
  reserve(caller: LimitedCaller, quote: Quote, wait: WaitForStore = (call) => call): MaybePromise<Reservation> {
    return chain(this.#tryReserve({ caller, quote, wait }), (outcome) =>
      'reservation' in outcome ? outcome.reservation : this.#reserveRecounted({ caller, quote, wait }, outcome),
    )
  }

  async #reserveRecounted({ caller, quote: request, wait }: Attempt, rejection: Rejection): Promise<Reservation> {
    const { reserveRecounted } = await loadRecount()
    return reserveRecounted(rejection, {
      now: this.#now,
      request,
      windowsAt: (at) => wait(this.#windowsOf(caller, at)),
      tryReserve: (quote, requestStatus) => this.#tryReserve({ caller, quote, requestStatus, wait }),
      reserve: (claims) => {
        const reservationId = this.#nextId()
        const result = this.#reserveInStore({ reservationId, claims, expiresAfterMs: this.#expiresAfterMs }, wait)
        return { reservationId, result }
      },
      settle: (settlement) => this.#settlements.settle(settlement),
    })
  }

  #tryReserve({ caller, quote, requestStatus, wait }: Attempt): MaybePromise<Outcome> {
    const at = this.#now()
    return chain(wait(this.#windowsOf(caller, at)), (windows) => {
      const limits =
        requestStatus === undefined ? windows.limits : windows.limits.filter(({ kind }) => kind !== 'requests')
      const limitClaims = claimsFor(limits, quote)
      const { claims, minGrant } = limitClaims
      const reservationId = this.#nextId()
      const context = { caller, quote, requestStatus, at, windows, limitClaims, reservationId }
      const pendingResult = this.#reserveInStore(
        { reservationId, claims, minGrant, expiresAfterMs: this.#expiresAfterMs },
        wait,
      )
      const outcome = chain(pendingResult, (result) => this.#toOutcome(context, result))
      return this.#allowsUnreservedRequests && isPromise(outcome)
        ? outcome.catch((error) => this.#reserveWithoutStore(context, error))
        : outcome
    })
  }

  #reserveWithoutStore(context: ReservationContext, error: unknown): MaybePromise<Outcome> {
    if (!GatewayError.is(error) || error.kind !== 'overloaded') throw error
    const { limits, worstCost } = context.limitClaims
    const rate = rateStatus(limits, [], { now: context.at, exceeded: undefined })
    const reservationId = this.#nextId()
    const grant = {
      rate,
      grantedCost: worstCost,
      reserveRequest: { reservationId, claims: [], expiresAfterMs: this.#expiresAfterMs },
    }
    return this.#accept({ ...context, reservationId }, grant, [])
  }

  #toOutcome(context: ReservationContext, result: ReserveResult): MaybePromise<Outcome> {
    const { quote, requestStatus, at, limitClaims } = context
    const { limits, worstCost, tokens } = limitClaims
    // If the store returns an index that is out of range, the last limit is reported.
    const exceeded = result.accepted ? undefined : (limits[result.rejectedIndex] ?? limits.at(-1))
    const newStatus = rateStatus(limits, result.levels, { now: at, exceeded })
    const rate = requestStatus === undefined || exceeded?.kind === 'tokens' ? newStatus : requestStatus
    if (!result.accepted && exceeded !== undefined) {
      const recount = recountFor(exceeded, result.levels[result.rejectedIndex] ?? 0, quote)
      if (exceeded.kind === 'budget' && recount === undefined) this.#reportRefusal(context.caller, exceeded)
      const errorContext = { rate, now: at, tokens, isCounted: quote.recount?.tokens === undefined }
      return loadErrors().then(({ limitError }) => ({ error: limitError(exceeded, errorContext), recount }))
    }
    const grantedCost = result.accepted && result.granted < worstCost ? result.granted : worstCost
    return this.#accept(context, { rate, grantedCost }, result.levels)
  }

  #accept(context: ReservationContext, grant: Grant, levels: readonly number[]): MaybePromise<Outcome> {
    const { caller, limitClaims } = context
    const { budgetObserver, loadRecords } = this.#options
    const isObserved = budgetObserver !== undefined && limitClaims.limits.some(({ kind }) => kind === 'budget')
    const outcome: MaybePromise<Outcome> = isObserved
      ? chain(budgetObserver(), (observer) => {
          const ownEntries = observer?.onReserved(caller, limitClaims.limits, levels) ?? []
          const onSettled = ownEntries.length === 0 ? undefined : () => observer?.onSettled()
          return { reservation: this.#createReservation(context, { ...grant, ownEntries, onSettled }) }
        })
      : { reservation: this.#createReservation(context, grant) }
    return loadRecords === undefined ? outcome : chain(loadRecords(), () => outcome)
  }

  #reportRefusal(caller: LimitedCaller, limit: Limit): void {
    void chain(this.#options.budgetObserver?.(), (observer) => observer?.onRefused(caller, limit))
  }

  #createReservation(
    { caller, quote, at, windows, limitClaims, reservationId }: ReservationContext,
    { rate, grantedCost, reserveRequest, ownEntries = [], onSettled }: Grant,
  ): Reservation {
    const limits = limitClaims.applied
    const settlementFor = (usage: RequestUsage, entries: readonly SettlementRecord[] = []): Settlement =>
      buildSettlement({
        reservationId,
        caller,
        windows,
        limits,
        usage: sanitizeUsage(usage, grantedCost),
        entries: ownEntries.length === 0 ? entries : [...entries, ...ownEntries],
        rows: this.#usageRows,
      })
    const settle = (usage: RequestUsage, entries: readonly SettlementRecord[] | undefined): MaybePromise<void> => {
      const settled = this.#settlements.settle(settlementFor(usage, entries), reserveRequest)
      return onSettled === undefined ? settled : chain(settled, onSettled)
    }
    let settling: { readonly done: MaybePromise<void> } | undefined
    return {
      isReserved: reserveRequest === undefined,
      reservedAt: at,
      grantedCost,
      rate,
      quote,
      outputTokens: coveredOutputTokens(limitClaims, quote, grantedCost),
      settlement: settlementFor,
      settle: (usage, entries) => (settling ??= { done: settle(usage, entries) }).done,
    }
  }

  #reserveInStore(request: ReserveRequest, wait: WaitForStore): MaybePromise<ReserveResult> {
    const result = this.#store.reserve(request)
    return isPromise(result) ? this.#waitOrRelease(result, request.reservationId, wait) : result
  }

  /** A call that times out may still reserve. Without a release, its amounts would stay reserved until they expire. */
  async #waitOrRelease(
    result: Promise<ReserveResult>,
    reservationId: string,
    wait: WaitForStore,
  ): Promise<ReserveResult> {
    try {
      return await wait(result)
    } catch (error) {
      const release = (): MaybePromise<boolean> => this.#store.settle({ reservationId, charges: [], tallies: [] })
      result.then(release, release).catch(() => {})
      throw error
    }
  }

  status(caller: LimitedCaller | undefined): MaybePromise<RateStatus> {
    const at = this.#now()
    if (caller === undefined) return { limit: 0, remaining: 0, resetAt: periodOf(at, '1h').end }
    return chain(this.#windowsOf(caller, at), (windows) => {
      const limits = windows.limits.filter((limit) => limit.kind === 'requests')
      const pendingLevels = limits.length === 0 ? [] : this.#store.levels(limits.map((limit) => limit.counter))
      return chain(pendingLevels, (levels) => {
        const amounts = levels.map(({ spent, held }) => spent + held)
        return rateStatus(limits, amounts, { now: at, exceeded: undefined })
      })
    })
  }

  async forecast(caller: LimitedCaller, quote: Quote): Promise<Forecast> {
    const { forecast } = await import('./balances.ts')
    return forecast(caller, quote, {
      store: this.#store,
      shared: this.#shared,
      now: this.#now,
      expiresAfterMs: this.#expiresAfterMs,
    })
  }

  retry(): Promise<number> {
    return this.#settlements.retry()
  }

  settlementCounts(): SettlementCounts {
    return this.#settlements.counts()
  }
}

interface Attempt {
  readonly caller: LimitedCaller
  readonly quote: Quote
  /** Set once a recount has been charged to the request limits. */
  readonly requestStatus?: RateStatus | undefined
  readonly wait: WaitForStore
}

interface Grant {
  readonly rate: RateStatus
  readonly grantedCost: number
  /** Set if the store has no reservation yet. The settlement sends it first. */
  readonly reserveRequest?: ReserveRequest
  /** Appended in addition to those of the request. */
  readonly ownEntries?: readonly SettledEntry[]
  readonly onSettled?: (() => void) | undefined
}

interface ReservationContext {
  readonly caller: LimitedCaller
  readonly quote: Quote
  readonly requestStatus: RateStatus | undefined
  readonly at: number
  readonly windows: Windows
  readonly limitClaims: LimitClaims
  readonly reservationId: string
}
