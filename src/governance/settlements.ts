import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { toNanoUsd } from '../core/money.ts'
import type { Runtime } from '../core/ports.ts'
import type { Charge, ReserveRequest, SettledEntry, Settlement, Store, Tally } from '../core/store.ts'
import { toAmount } from './claims.ts'
import { counterExpiry, type KeyWindows, type Limit, type TallyTarget } from './limits.ts'
import type { Used } from './reservation.ts'

/** Sends settlements to the store and retries failed ones. */
export interface Settlements {
  /**
   * Rejects if the store fails. A failed settlement is retried after a later settlement, by `retry`, and periodically.
   *
   * @param opening Opens the reservation of a request that was served without one. @default the reservation is open
   */
  settle(settlement: Settlement, opening?: ReserveRequest): MaybePromise<void>
  /** Retries failed settlements after running ones end. Resolves with the number that failed again. */
  retry(): Promise<number>
  waiting(): number
  /**
   * Returns the number of settlements that were discarded, because too many failed or the store rejected the amounts.
   */
  dropped(): number
}

interface Sending {
  readonly settlement: Settlement
  /** Undefined once the reservation is open, because opening it again after its settlement would bill it twice. */
  opening: ReserveRequest | undefined
}

export interface SettlementsOptions {
  /** Schedules retries. @default only later calls retry */
  readonly after?: Runtime['after']
  /** Maximum number of failed settlements. Above it, the oldest is discarded and its reservation expires. @default 10,000 */
  readonly maxFailed?: number
  /** Called with each discarded settlement. */
  readonly onDropped?: (settlement: Settlement) => void
}

const MAX_FAILED = 10_000
const RETRY_MS = 1_000

/** Retries are safe, because the store settles a reservation only once. */
export function createSettlements(store: Store, options: SettlementsOptions = {}): Settlements {
  const { after, maxFailed = MAX_FAILED, onDropped } = options
  const failed: Sending[] = []
  const running = new Set<Promise<void>>()
  let isRetrying = false
  let isScheduled = false
  let dropped = 0

  function settle(settlement: Settlement, opening?: ReserveRequest): MaybePromise<void> {
    const sending: Sending = { settlement, opening }
    const onFailed = (error: unknown): never => {
      if (isRefused(error)) drop(settlement)
      else retryLater(sending)
      throw error
    }
    let settled: MaybePromise<boolean>
    try {
      settled = send(sending)
    } catch (error) {
      return onFailed(error)
    }
    return isPromise(settled) ? track(settled.then(retryFailed, onFailed)) : retryFailed()
  }

  function send(sending: Sending): MaybePromise<boolean> {
    const { settlement, opening } = sending
    return opening === undefined ? store.settle(settlement) : openAndSend(sending, opening)
  }

  async function openAndSend(sending: Sending, opening: ReserveRequest): Promise<boolean> {
    try {
      await store.reserve(opening)
    } catch (error) {
      // An earlier attempt opened the reservation.
      if (!isRefused(error)) throw error
    }
    sending.opening = undefined
    return store.settle(sending.settlement)
  }

  async function track(settled: Promise<void>): Promise<void> {
    running.add(settled)
    try {
      await settled
    } finally {
      running.delete(settled)
    }
  }

  function retryLater(sending: Sending): void {
    failed.push(sending)
    const oldest = failed.length > maxFailed ? failed.shift() : undefined
    if (oldest !== undefined) drop(oldest.settlement)
    schedule()
  }

  function drop(settlement: Settlement): void {
    dropped += 1
    onDropped?.(settlement)
  }

  function schedule(): void {
    if (after === undefined || isScheduled || failed.length === 0) return
    isScheduled = true
    after(
      RETRY_MS,
      () => {
        isScheduled = false
        void sendFailed().then(schedule)
      },
      { isBackground: true },
    )
  }

  function retryFailed(): MaybePromise<void> {
    return failed.length === 0 ? undefined : chain(sendFailed(), () => undefined)
  }

  async function retry(): Promise<number> {
    await Promise.allSettled(running)
    return sendFailed()
  }

  async function sendFailed(): Promise<number> {
    if (isRetrying) return failed.length
    isRetrying = true
    try {
      for (let next = failed.shift(); next !== undefined; next = failed.shift()) {
        if (!(await isAccepted(next))) return failed.unshift(next)
      }
      return 0
    } finally {
      isRetrying = false
    }
  }

  /** Discards a settlement that the store rejects. Otherwise, it would block later ones. */
  async function isAccepted(sending: Sending): Promise<boolean> {
    try {
      await send(sending)
    } catch (error) {
      if (!isRefused(error)) return false
      drop(sending.settlement)
    }
    return true
  }

  return { settle, retry, waiting: () => failed.length, dropped: () => dropped }
}

/** Returns true if the store rejected the amounts. A retry cannot succeed. */
function isRefused(error: unknown): boolean {
  return error instanceof RangeError
}

interface Settled {
  readonly reservationId: string
  /** The windows at the time of the reservation. */
  readonly windows: KeyWindows
  readonly limits: readonly Limit[]
  readonly used: Used
  readonly entries: readonly SettledEntry[]
}

export function settlementOf({ reservationId, windows, limits, used, entries }: Settled): Settlement {
  const tokens = toAmount(used.promptTokens + used.completionTokens)
  const amounts = { requests: 1, tokens, budget: used.billed }
  const charges: Charge[] = []
  for (const limit of limits) {
    const amount = amounts[limit.kind]
    if (amount > 0) charges.push({ counter: limit.counter, amount, expiresAt: counterExpiry(limit) })
  }
  return { reservationId, charges, tallies: talliesOf(windows.tallies, used), entries }
}

/** Clamps usage to non-negative integers. If the billed amount is not a number, bills the reserved amount. */
export function checkedUsage(used: Used, reserved: number): Used {
  return {
    promptTokens: finiteOr(used.promptTokens, 0),
    completionTokens: finiteOr(used.completionTokens, 0),
    savedTokens: Number.isSafeInteger(used.savedTokens) ? used.savedTokens : 0,
    theoretical: toNanoUsd(finiteOr(used.theoretical, 0)),
    actual: toNanoUsd(finiteOr(used.actual, 0)),
    billed: toNanoUsd(finiteOr(used.billed, reserved)),
    model: used.model,
  }
}

function finiteOr(amount: number, fallback: number): number {
  return Number.isFinite(amount) ? toAmount(amount) : fallback
}

/** Amounts of one request, or sums over a window. */
export type UsageSums = Readonly<Record<UsageField, number>>

export type UsageField = 'requests' | 'prompt' | 'completion' | 'saved' | 'theoretical' | 'actual' | 'billed'

const USAGE_FIELDS: readonly UsageField[] = [
  'requests',
  'prompt',
  'completion',
  'saved',
  'theoretical',
  'actual',
  'billed',
]

/** Maximum length of a model name in a tally, in characters. */
const MAX_MODEL_LENGTH = 200

function talliesOf(targets: readonly TallyTarget[], used: Used): readonly Tally[] {
  const amounts: UsageSums = {
    requests: 1,
    prompt: used.promptTokens,
    completion: used.completionTokens,
    saved: used.savedTokens,
    theoretical: used.theoretical,
    actual: used.actual,
    billed: used.billed,
  }
  const byModel = isAnswered(used) ? amountsByModel(used.model, amounts) : undefined
  const tallies: Tally[] = []
  for (const { name, kind, hourField, expiresAt } of targets) {
    if (kind === 'total') {
      tallies.push({ name, amounts: withHour(amounts, hourField, used.billed), expiresAt })
    } else if (kind === 'models') {
      if (byModel !== undefined) tallies.push({ name, amounts: byModel, expiresAt })
    } else if (used.billed > 0) {
      tallies.push({ name, amounts: withHour({ billed: used.billed }, hourField, used.billed), expiresAt })
    }
  }
  return tallies
}

function withHour(
  amounts: Readonly<Record<string, number>>,
  hourField: string | undefined,
  billed: number,
): Readonly<Record<string, number>> {
  // A spread with an added field is several times slower.
  return hourField === undefined || billed === 0 ? amounts : Object.assign({ [hourField]: billed }, amounts)
}

const MAX_CACHED_MODELS = 200
const fieldNames = new Map<string, readonly (readonly [UsageField, string])[]>()

function amountsByModel(model: string, amounts: UsageSums): Readonly<Record<string, number>> {
  const byModel: Record<string, number> = {}
  for (const [field, name] of fieldNamesOf(model.slice(0, MAX_MODEL_LENGTH))) byModel[name] = amounts[field]
  return byModel
}

function fieldNamesOf(model: string): readonly (readonly [UsageField, string])[] {
  const known = fieldNames.get(model)
  if (known !== undefined) return known
  const names = USAGE_FIELDS.map((field) => [field, `${field} ${model}`] as const)
  if (fieldNames.size >= MAX_CACHED_MODELS) fieldNames.clear()
  fieldNames.set(model, names)
  return names
}

/** Requests without usage are not counted by model, because callers can invent any number of model names. */
function isAnswered(used: Used): boolean {
  return used.promptTokens > 0 || used.completionTokens > 0 || used.theoretical > 0
}
