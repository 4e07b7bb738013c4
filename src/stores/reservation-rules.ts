import type { Claim, ReserveRequest } from '../core/store.ts'

/** Maximum value of a counter or tally. */
export const MAX_AMOUNT: number = Number.MAX_SAFE_INTEGER

/** Time for which an expired reservation can still be settled, in milliseconds. */
export const LATE_MS: number = 2 * 3_600_000

export type Decision = { readonly refused: number } | { readonly granted: number }

/**
 * Returns the amount granted to elastic claims (Infinity if there are none), or the index of the first claim that does
 * not fit. `before[i]` is spent + held of claim i's counter. What remains is a difference of safe integers, so it is exact.
 */
export function decide({ claims, least }: ReserveRequest, before: readonly number[]): Decision {
  let granted = Infinity
  for (const [index, { max, amount, elastic }] of claims.entries()) {
    const remaining = max - (before[index] ?? 0)
    const needed = elastic === true ? Math.min(amount, least ?? amount) : amount
    if (needed > remaining) return { refused: index }
    if (elastic === true) granted = Math.min(granted, amount, remaining)
  }
  return { granted }
}

/** Returns the amount that a claim holds, given the amount granted to elastic claims. */
export function amountOf({ elastic, amount }: Claim, granted: number): number {
  return elastic === true ? granted : amount
}

/** Throws for an invalid request. `at` is the current time of the store. */
export function checkRequest(request: ReserveRequest, at: number): void {
  checkClaims(request)
  for (const { counter, expiresAt } of request.claims) if (expiresAt <= at) throw endedCounter(counter)
}

/** Checks that need no clock. */
export function checkClaims({ claims, least, expiresAfterMs }: ReserveRequest): void {
  if (hasDuplicates(claims)) {
    throw new RangeError('Two claims of one reservation name the same counter. Merge them into one claim.')
  }
  for (const claim of claims) {
    checkAmount(claim.counter, claim.amount)
    checkAmount(claim.counter, claim.max)
  }
  if (least !== undefined) checkAmount('least', least)
  if (!(expiresAfterMs > 0)) throw new RangeError('expiresAfterMs must be above 0.')
}

/** A reservation has few claims, so comparing them is cheaper than a set. */
function hasDuplicates(claims: readonly Claim[]): boolean {
  return claims.some(({ counter }, index) => {
    for (let other = index + 1; other < claims.length; other++) if (claims[other]?.counter === counter) return true
    return false
  })
}

export function endedCounter(counter: string): RangeError {
  return new RangeError(
    `The counter ${counter} ended before the current time of the store. Use the same clock for the store and the gateway.`,
  )
}

export function takenReservationId(): RangeError {
  return new RangeError('This reservationId is in use. Each reservation needs a unique id.')
}

/** Throws for NaN, fractions, negative amounts and unsafe integers: they would break every later comparison. */
export function checkAmount(name: string, amount: number): void {
  if (Number.isSafeInteger(amount) && amount >= 0) return
  throw new RangeError(`The amount of ${name} is ${amount}; expected an integer from 0 to 2^53 - 1.`)
}
