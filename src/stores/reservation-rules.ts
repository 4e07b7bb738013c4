import type { Claim, ReserveRequest } from '../core/store.ts'

/** Maximum absolute value of a counter or tally. */
export const MAX_AMOUNT: number = Number.MAX_SAFE_INTEGER

/** How long an expired reservation can still be settled, in milliseconds. */
export const LATE_MS: number = 2 * 3_600_000

export type Decision = { readonly refused: number } | { readonly granted: number }

/**
 * Returns the amount granted to elastic claims (Infinity without any), or the index of the first claim that does not
 * fit. `before[i]` is the sum of the spent and held amounts of claim i's counter.
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

export function amountOf({ elastic, amount }: Claim, granted: number): number {
  return elastic === true ? granted : amount
}

/** @param at The current time of the store. */
export function checkRequest(request: ReserveRequest, at: number): void {
  checkClaims(request)
  for (const { counter, expiresAt } of request.claims) if (expiresAt <= at) throw expiredCounter(counter)
}

export function checkClaims({ claims, least, expiresAfterMs }: ReserveRequest): void {
  if (hasDuplicates(claims)) {
    throw new RangeError('Two claims of one reservation name the same counter. Merge them into one claim.')
  }
  for (const claim of claims) {
    checkAmount(claim.counter, claim.amount)
    checkAmount(claim.counter, claim.max)
  }
  if (least !== undefined) checkAmount('least', least)
  if (!(expiresAfterMs > 0)) throw new RangeError(`expiresAfterMs is ${expiresAfterMs}; expected a number above 0.`)
}

/** Compares each pair, which is faster than a Set because a reservation has few claims. */
function hasDuplicates(claims: readonly Claim[]): boolean {
  return claims.some(({ counter }, index) => {
    for (let other = index + 1; other < claims.length; other++) if (claims[other]?.counter === counter) return true
    return false
  })
}

export function expiredCounter(counter: string): RangeError {
  return new RangeError(
    `The counter ${counter} has expired according to the store's clock. Use the same clock for the store and the gateway.`,
  )
}

export function duplicateReservationId(): RangeError {
  return new RangeError('A reservation with this reservationId already exists. Use a unique id for each reservation.')
}

/** NaN, fractions, negative amounts and unsafe integers would break later comparisons. */
export function checkAmount(name: string, amount: number): void {
  if (Number.isSafeInteger(amount) && amount >= 0) return
  throw new RangeError(`The amount of ${name} is ${amount}; expected an integer from 0 to 2^53 - 1.`)
}
