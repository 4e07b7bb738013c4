import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { toNanoUsd } from '../core/money.ts'
import type { Runtime } from '../core/ports.ts'
import type { Charge, ReserveRequest, Settlement, Store, Tally } from '../core/store.ts'
import type { Caller } from './caller.ts'
import type { Limit } from './limits.ts'
import { type RequestUsage, type SettlementRecord, toAmount } from './reservation.ts'
import { tagList, type UsageRows } from './usage-rows.ts'
import type { Windows } from './windows.ts'

export interface SettlementCounts {
  readonly waiting: number
  readonly dropped: number
}

interface PendingSettlement {
  readonly settlement: Settlement
  /** Undefined once the reservation is open. Opening it again after its settlement would bill the request twice. */
  reserveRequest: ReserveRequest | undefined
}

export interface SettlementsOptions {
  /** Schedules periodic retries. @default failed settlements are retried only by later calls */
  readonly after?: Runtime['after']
  readonly onDropped?: (settlement: Settlement) => void
}

/** Maximum number of failed settlements. Above it, the oldest is discarded. */
const MAX_FAILED = 10_000
const RETRY_MS = 1_000

/** Retries are safe, because the store settles a reservation only once. */
export class Settlements {
  readonly #store: Store
  readonly #after: SettlementsOptions['after']
  readonly #onDropped: SettlementsOptions['onDropped']
  readonly #failed: PendingSettlement[] = []
  readonly #running = new Set<Promise<void>>()
  #isRetrying = false
  #isScheduled = false
  #droppedCount = 0

  constructor(store: Store, options: SettlementsOptions = {}) {
    this.#store = store
    const { after, onDropped } = options
    this.#after = after
    this.#onDropped = onDropped
  }

  /** Fails if the store fails, and retries later except after a rejection. `reserveRequest` opens a missing reservation. */
  settle(settlement: Settlement, reserveRequest?: ReserveRequest): MaybePromise<void> {
    const pending: PendingSettlement = { settlement, reserveRequest }
    const onFailed = (error: unknown): never => {
      if (isRejection(error)) this.#drop(settlement)
      else this.#retryLater(pending)
      throw error
    }
    let settled: MaybePromise<boolean>
    try {
      settled = this.#send(pending)
    } catch (error) {
      return onFailed(error)
    }
    return isPromise(settled) ? this.#track(settled.then(() => this.#retryFailed(), onFailed)) : this.#retryFailed()
  }

  #send(pending: PendingSettlement): MaybePromise<boolean> {
    const { settlement, reserveRequest } = pending
    return reserveRequest === undefined ? this.#store.settle(settlement) : this.#reserveAndSend(pending, reserveRequest)
  }

  async #reserveAndSend(pending: PendingSettlement, reserveRequest: ReserveRequest): Promise<boolean> {
    try {
      await this.#store.reserve(reserveRequest)
    } catch (error) {
      // A rejection means that an earlier attempt opened the reservation.
      if (!isRejection(error)) throw error
    }
    pending.reserveRequest = undefined
    return this.#store.settle(pending.settlement)
  }

  #track(settled: Promise<void>): Promise<void> {
    const tracked = settled.finally(() => this.#running.delete(tracked))
    this.#running.add(tracked)
    return tracked
  }

  #retryLater(pending: PendingSettlement): void {
    this.#failed.push(pending)
    const oldest = this.#failed.length > MAX_FAILED ? this.#failed.shift() : undefined
    if (oldest !== undefined) this.#drop(oldest.settlement)
    this.#schedule()
  }

  #drop(settlement: Settlement): void {
    this.#droppedCount += 1
    this.#onDropped?.(settlement)
  }

  #schedule(): void {
    if (this.#after === undefined || this.#isScheduled || this.#failed.length === 0) return
    this.#isScheduled = true
    this.#after(
      RETRY_MS,
      () => {
        this.#isScheduled = false
        void this.#sendFailed().then(() => this.#schedule())
      },
      { isBackground: true },
    )
  }

  #retryFailed(): MaybePromise<void> {
    return this.#failed.length === 0 ? undefined : chain(this.#sendFailed(), () => undefined)
  }

  /** Resolves with the number of settlements that still wait. */
  async retry(): Promise<number> {
    await Promise.allSettled(this.#running)
    return this.#sendFailed()
  }

  async #sendFailed(): Promise<number> {
    if (this.#isRetrying) return this.#failed.length
    this.#isRetrying = true
    try {
      for (let next = this.#failed.shift(); next !== undefined; next = this.#failed.shift()) {
        try {
          await this.#send(next)
        } catch (error) {
          if (!isRejection(error)) return this.#failed.unshift(next)
          // It would block later ones.
          this.#drop(next.settlement)
        }
      }
      return 0
    } finally {
      this.#isRetrying = false
    }
  }

  counts(): SettlementCounts {
    return { waiting: this.#failed.length, dropped: this.#droppedCount }
  }
}

/** True if the store rejected the call as invalid, so a retry cannot succeed. */
function isRejection(error: unknown): boolean {
  return error instanceof RangeError
}

interface SettledRequest {
  readonly reservationId: string
  readonly caller: Pick<Caller, 'key' | 'context'>
  /** The windows at the time of the reservation. */
  readonly windows: Windows
  readonly limits: readonly Limit[]
  readonly usage: RequestUsage
  readonly entries: readonly SettlementRecord[]
  readonly rows: UsageRows
}

export function buildSettlement(settled: SettledRequest): Settlement {
  const { reservationId, limits, usage, entries } = settled
  const tokens = toAmount(usage.promptTokens + usage.completionTokens)
  const amounts = { requests: 1, tokens, budget: usage.counted ?? usage.billed }
  const charges: Charge[] = []
  for (const limit of limits) {
    const amount = amounts[limit.kind]
    if (amount > 0) charges.push({ counter: limit.counter, amount, expiresAt: limit.expiresAt })
  }
  return { reservationId, charges, tallies: buildTallies(settled), entries }
}

/** A billed amount that is not finite becomes the reserved amount. */
export function sanitizeUsage(usage: RequestUsage, reserved: number): RequestUsage {
  return {
    promptTokens: finiteOr(usage.promptTokens, 0),
    completionTokens: finiteOr(usage.completionTokens, 0),
    savedTokens: Number.isSafeInteger(usage.savedTokens) ? usage.savedTokens : 0,
    theoretical: toNanoUsd(finiteOr(usage.theoretical, 0)),
    actual: toNanoUsd(finiteOr(usage.actual, 0)),
    billed: toNanoUsd(finiteOr(usage.billed, reserved)),
    model: usage.model,
    ...(usage.counted !== undefined && { counted: toNanoUsd(finiteOr(usage.counted, reserved)) }),
    provider: usage.provider,
    attributedUser: usage.attributedUser,
    attributedSession: usage.attributedSession,
  }
}

function finiteOr(amount: number, fallback: number): number {
  return Number.isFinite(amount) ? toAmount(amount) : fallback
}

export type UsageSums = Readonly<Record<UsageField, number>>

type UsageField = (typeof USAGE_FIELDS)[number]

export const USAGE_FIELDS = ['requests', 'prompt', 'completion', 'saved', 'theoretical', 'actual', 'billed'] as const

const MAX_MODEL_LENGTH = 200

function buildTallies({ windows, caller, usage, entries, rows }: SettledRequest): readonly Tally[] {
  const amounts: UsageSums = {
    requests: 1,
    prompt: usage.promptTokens,
    completion: usage.completionTokens,
    saved: usage.savedTokens,
    theoretical: usage.theoretical,
    actual: usage.actual,
    billed: usage.billed,
  }
  // Requests without usage have no model, because callers can invent any number of model names.
  const hasUsage = usage.promptTokens > 0 || usage.completionTokens > 0 || usage.theoretical > 0
  const model = hasUsage ? usage.model.slice(0, MAX_MODEL_LENGTH) : ''
  const tallies: Tally[] = []
  for (const target of windows.tallies) {
    const { name, hourField, expiresAt } = target
    if (target.kind === 'total') {
      tallies.push({ name, amounts: addHourField(amounts, hourField, usage.billed), expiresAt })
    } else if (target.kind === 'billed') {
      if (usage.billed > 0)
        tallies.push({ name, amounts: addHourField({ billed: usage.billed }, hourField, usage.billed), expiresAt })
    } else if (target.kind === 'rows') {
      const { key, context } = caller
      const { attributedUser, attributedSession, provider = '' } = usage
      const { user = attributedUser, session = attributedSession } = context
      // Written inline, because nearly all requests of a key without customers have none of these.
      const isPlain = user === undefined && session === undefined && context.tags === undefined
      if (isPlain) {
        const row = JSON.stringify(['', '', key.id, model, provider])
        tallies.push({ name, amounts: amountsByName(row, amounts), expiresAt })
      } else {
        const place = rows.place(target, { user, session, key: key.id, model, provider, tags: tagList(context) })
        tallies.push({ name: place.name, amounts: amountsOfRow(place.row, amounts), expiresAt })
      }
    } else if (model !== '') {
      tallies.push({ name, amounts: amountsByName(model, amounts), expiresAt })
    }
  }
  for (const { tally } of entries) if (tally !== undefined) tallies.push(tally)
  return tallies
}

function addHourField(
  amounts: Readonly<Record<string, number>>,
  hourField: string | undefined,
  billed: number,
): Readonly<Record<string, number>> {
  // A spread with an added field is several times slower.
  return hourField === undefined || billed === 0 ? amounts : Object.assign({ [hourField]: billed }, amounts)
}

const MAX_CACHED_NAMES = 500
const fieldNamesByName = new Map<string, readonly (readonly [UsageField, string])[]>()

/** @param name A model, or a row without a user, session and tags. */
function amountsByName(name: string, amounts: UsageSums): Readonly<Record<string, number>> {
  const named: Record<string, number> = {}
  for (const [field, fieldName] of fieldNamesOf(name)) named[fieldName] = amounts[field]
  return named
}

/**
 * Most rows are rare. V8 would create a hidden class for each of their names, which takes several times longer than an
 * object without a prototype, whose names are in a hash table.
 */
function amountsOfRow(row: string, amounts: UsageSums): Readonly<Record<string, number>> {
  const named = Object.create(null) as Record<string, number>
  for (const field of USAGE_FIELDS) named[`${field} ${row}`] = amounts[field]
  return named
}

function fieldNamesOf(suffix: string): readonly (readonly [UsageField, string])[] {
  const cached = fieldNamesByName.get(suffix)
  if (cached !== undefined) return cached
  const names = USAGE_FIELDS.map((field) => [field, `${field} ${suffix}`] as const)
  if (fieldNamesByName.size >= MAX_CACHED_NAMES) fieldNamesByName.clear()
  fieldNamesByName.set(suffix, names)
  return names
}
