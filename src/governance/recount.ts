/** Repeats a reservation with better counts of the prompt. Loaded when a limit does not cover the first estimate. */
import type { MaybePromise } from '../core/async.ts'
import type { GatewayError } from '../core/errors.ts'
import type { Claim, ReserveResult, Settlement } from '../core/store.ts'
import { limitError } from './limit-error.ts'
import { type LimitedRequest, type RateStatus, rateStatus } from './limits.ts'
import { claimsFor, oneRequest, type Quote, type Recount, type Reservation } from './reservation.ts'
import type { Windows } from './windows.ts'

export interface Rejection {
  readonly error: GatewayError
  readonly recount: Recount | undefined
}

export type Outcome = { readonly reservation: Reservation } | Rejection

/** The ledger, for one caller. */
interface RecountingLedger {
  readonly now: () => number
  readonly request: LimitedRequest
  windowsAt(at: number): MaybePromise<Windows>
  /** @param requestStatus Set once a recount has been charged to the request limits. */
  tryReserve(quote: Quote, requestStatus: RateStatus | undefined): MaybePromise<Outcome>
  reserve(claims: readonly Claim[]): { readonly reservationId: string; readonly result: MaybePromise<ReserveResult> }
  settle(settlement: Settlement): MaybePromise<void>
}

export async function reserveRecounted(rejection: Rejection, ledger: RecountingLedger): Promise<Reservation> {
  let requestStatus: RateStatus | undefined
  for (let { recount, error } = rejection; ;) {
    if (recount === undefined) throw error
    if (recount.callsUpstream) requestStatus ??= await chargeRecount(ledger)
    const outcome = await ledger.tryReserve(await recount.run(), requestStatus)
    if ('reservation' in outcome) return outcome.reservation
    ;({ recount, error } = outcome)
  }
}

async function chargeRecount(ledger: RecountingLedger): Promise<RateStatus> {
  const at = ledger.now()
  const { limits, claims } = claimsFor((await ledger.windowsAt(at)).limits, oneRequest(ledger.request))
  if (limits.length === 0) return rateStatus([], [], { now: at, exceeded: undefined })
  const { reservationId, result: reserving } = ledger.reserve(claims)
  const result = await reserving
  const exceeded = result.accepted ? undefined : (limits[result.rejectedIndex] ?? limits.at(-1))
  const rate = rateStatus(limits, result.levels, { now: at, exceeded })
  if (exceeded !== undefined) throw limitError(exceeded, { rate, now: at, tokens: 0 })
  const charges = claims.map(({ counter, amount, expiresAt }) => ({ counter, amount, expiresAt }))
  await ledger.settle({ reservationId, charges, tallies: [] })
  return rate
}
