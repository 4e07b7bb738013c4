import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import type { ReserveRequest, Settlement, Store } from '../core/store.ts'
import type { Runtime } from '../core/ports.ts'

/** Hands settlements to the store, and again those that it did not take. */
export interface Settlements {
  /**
   * Rejects when the store fails. The settlement is then kept and sent again: by later settlements, by `retry`, and by
   * itself while any is kept.
   *
   * @param opening Opens the reservation first, for a request that was served without a reservation. @default the reservation is open
   */
  settle(settlement: Settlement, opening?: ReserveRequest): MaybePromise<void>
  /** Waits for settlements under way, then sends once more what is kept; resolves to how many are still left. */
  retry(): Promise<number>
  /** How many are kept to be sent again. */
  waiting(): number
  /** How many were given up: too many were kept, or the store refused the amounts. */
  dropped(): number
}

/** A settlement on its way to the store. */
interface Sending {
  readonly settlement: Settlement
  /** Absent once the reservation is open: opening it a second time after its settlement would bill it twice. */
  opening: ReserveRequest | undefined
}

export interface SettlementsOptions {
  /** Sends kept settlements again without waiting for a request. @default only later calls send them again */
  readonly after?: Runtime['after']
  /** Maximum number of kept settlements. @default 10,000 */
  readonly maxKept?: number
  /** Notified of each settlement that is given up. */
  readonly onDropped?: (settlement: Settlement) => void
}

/** Beyond so many the oldest is given up: its reservation expires in the store. */
const MAX_KEPT = 10_000
const RETRY_MS = 1_000

/** A reservation is settled once, however often it is sent, so sending again is safe. */
export function createSettlements(store: Store, options: SettlementsOptions = {}): Settlements {
  const { after, maxKept = MAX_KEPT, onDropped } = options
  const kept: Sending[] = []
  const underWay = new Set<Promise<void>>()
  let isRetrying = false
  let isScheduled = false
  let dropped = 0

  function settle(settlement: Settlement, opening?: ReserveRequest): MaybePromise<void> {
    const sending: Sending = { settlement, opening }
    const failed = (error: unknown): never => {
      if (isRefused(error)) drop(settlement)
      else keep(sending)
      throw error
    }
    let settled: MaybePromise<boolean>
    try {
      settled = send(sending)
    } catch (error) {
      return failed(error)
    }
    return isPromise(settled) ? track(settled.then(retryKept, failed)) : retryKept()
  }

  function send(sending: Sending): MaybePromise<boolean> {
    const { settlement, opening } = sending
    return opening === undefined ? store.settle(settlement) : openAndSend(sending, opening)
  }

  async function openAndSend(sending: Sending, opening: ReserveRequest): Promise<boolean> {
    try {
      await store.reserve(opening)
    } catch (error) {
      // An earlier try has opened the reservation.
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
    kept.push(sending)
    const oldest = kept.length > maxKept ? kept.shift() : undefined
    if (oldest !== undefined) drop(oldest.settlement)
    schedule()
  }

  function drop(settlement: Settlement): void {
    dropped += 1
    onDropped?.(settlement)
  }

  function schedule(): void {
    if (after === undefined || isScheduled || kept.length === 0) return
    isScheduled = true
    after(
      RETRY_MS,
      () => {
        isScheduled = false
        void sendKept().then(schedule)
      },
      { isBackground: true },
    )
  }

  function retryKept(): MaybePromise<void> {
    return kept.length === 0 ? undefined : chain(sendKept(), () => undefined)
  }

  async function retry(): Promise<number> {
    await Promise.allSettled(underWay)
    return sendKept()
  }

  async function sendKept(): Promise<number> {
    if (isRetrying) return kept.length
    isRetrying = true
    try {
      for (let next = kept.shift(); next !== undefined; next = kept.shift()) {
        if (!(await isTaken(next))) return kept.unshift(next)
      }
      return 0
    } finally {
      isRetrying = false
    }
  }

  /** A settlement that the store will never take must not keep others back. */
  async function isTaken(sending: Sending): Promise<boolean> {
    try {
      await send(sending)
    } catch (error) {
      if (!isRefused(error)) return false
      drop(sending.settlement)
    }
    return true
  }

  return { settle, retry, waiting: () => kept.length, dropped: () => dropped }
}

/** The store answered that the settlement is wrong: sending it again cannot help. */
function isRefused(error: unknown): boolean {
  return error instanceof RangeError
}
