import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { nano } from '../core/money.ts'
import type { Runtime } from '../core/ports.ts'
import type { Charge, ReserveRequest, SettledEntry, Settlement, Store } from '../core/store.ts'
import { countable } from './claims.ts'
import type { KeyWindows } from './key-windows.ts'
import { counterExpiry, type Limit } from './limits.ts'
import type { Used } from './reservation.ts'
import { talliesOf } from './usage-tally.ts'

/** Sends settlements to the store and retries failed ones. */
export interface Settlements {
  /**
   * Rejects when the store fails. The settlement is then sent again: after a later settlement, by `retry`, and
   * periodically.
   *
   * @param opening Opens the reservation of a request that was served without one. @default the reservation is open
   */
  settle(settlement: Settlement, opening?: ReserveRequest): MaybePromise<void>
  /** Waits for running settlements, then sends failed ones again. Resolves with the number that failed again. */
  retry(): Promise<number>
  /** Number of settlements that will be sent again. */
  waiting(): number
  /** Number of discarded settlements: too many failed, or the store refused the amounts. */
  dropped(): number
}

/** A settlement that is being sent to the store. */
interface Sending {
  readonly settlement: Settlement
  /** Absent once the reservation is open: opening it a second time after its settlement would bill it twice. */
  opening: ReserveRequest | undefined
}

export interface SettlementsOptions {
  /** Schedules retries. @default sent again only by later calls */
  readonly after?: Runtime['after']
  /** Maximum number of failed settlements. Beyond it the oldest is discarded; its reservation expires. @default 10,000 */
  readonly maxFailed?: number
  /** Called with each discarded settlement. */
  readonly onDropped?: (settlement: Settlement) => void
}

const MAX_FAILED = 10_000
const RETRY_MS = 1_000

/** Sending a settlement again is safe, because the store settles a reservation once. */
export function createSettlements(store: Store, options: SettlementsOptions = {}): Settlements {
  const { after, maxFailed = MAX_FAILED, onDropped } = options
  const failed: Sending[] = []
  const underWay = new Set<Promise<void>>()
  let isRetrying = false
  let isScheduled = false
  let dropped = 0

  function settle(settlement: Settlement, opening?: ReserveRequest): MaybePromise<void> {
    const sending: Sending = { settlement, opening }
    const onFailed = (error: unknown): never => {
      if (isRefused(error)) drop(settlement)
      else keep(sending)
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
    underWay.add(settled)
    try {
      await settled
    } finally {
      underWay.delete(settled)
    }
  }

  function keep(sending: Sending): void {
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
    await Promise.allSettled(underWay)
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

  /** Drops a settlement that the store refuses, so that it does not block the others. */
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

/** Returns true if the store refused the settlement itself, so that a retry cannot succeed. */
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

/** Returns the data that settles a reservation. */
export function settlementOf({ reservationId, windows, limits, used, entries }: Settled): Settlement {
  const tokens = countable(used.promptTokens + used.completionTokens)
  const amounts = { requests: 1, tokens, budget: used.billed }
  const charges: Charge[] = []
  for (const limit of limits) {
    const amount = amounts[limit.kind]
    if (amount > 0) charges.push({ counter: limit.counter, amount, expiresAt: counterExpiry(limit) })
  }
  return { reservationId, charges, tallies: talliesOf(windows.tallies, used), entries }
}

/** Clamps usage to integers of at least 0. If the billed amount is not a number, bills the reserved amount. */
export function checkedUsage(used: Used, reserved: number): Used {
  return {
    promptTokens: orElse(used.promptTokens, 0),
    completionTokens: orElse(used.completionTokens, 0),
    savedTokens: Number.isSafeInteger(used.savedTokens) ? used.savedTokens : 0,
    theoretical: nano(orElse(used.theoretical, 0)),
    actual: nano(orElse(used.actual, 0)),
    billed: nano(orElse(used.billed, reserved)),
    model: used.model,
  }
}

function orElse(amount: number, fallback: number): number {
  return Number.isFinite(amount) ? countable(amount) : fallback
}
