import type { Claim, ReserveRequest } from '../core/ports.ts'

/** The greatest value of a counter or tally. */
export const MAX_AMOUNT: number = Number.MAX_SAFE_INTEGER

/** How long a ticket can still be settled after its hold has lapsed, in milliseconds. */
export const LATE_MS: number = 2 * 3_600_000

export type Decision = { readonly refused: number } | { readonly granted: number; readonly amounts: readonly number[] }

/**
 * Returns the amount of each claim, or the index of the first that does not fit. `before[i]` is spent + held of claim
 * i's counter. The remaining amount is a difference of safe integers, so it is exact.
 */
export function decide({ claims, least }: ReserveRequest, before: readonly number[]): Decision {
  const room = (index: number): number => (claims[index]?.max ?? 0) - (before[index] ?? 0)
  const wanted = (claim: Claim): number =>
    claim.elastic === true ? Math.min(claim.amount, least ?? claim.amount) : claim.amount
  const refused = claims.findIndex((claim, index) => wanted(claim) > room(index))
  if (refused !== -1) return { refused }
  const shares = claims.map((claim, index) => (claim.elastic === true ? Math.min(claim.amount, room(index)) : Infinity))
  const granted = Math.min(...shares)
  const amounts = claims.map((claim) => (claim.elastic === true ? granted : claim.amount))
  return { granted: granted === Infinity ? 0 : granted, amounts }
}

/** Throws for a request that no store may accept. `at` is the store's present. */
export function checkRequest(request: ReserveRequest, at: number): void {
  checkClaims(request)
  for (const { counter, expiresAt } of request.claims) if (expiresAt <= at) throw endedCounter(counter)
}

/** The checks that need no clock. */
export function checkClaims({ claims, least, lapsesAfterMs }: ReserveRequest): void {
  if (new Set(claims.map((claim) => claim.counter)).size < claims.length) {
    throw new RangeError('Two claims of one reservation name the same counter; join them into one.')
  }
  for (const claim of claims) {
    checkAmount(claim.counter, claim.amount)
    checkAmount(claim.counter, claim.max)
  }
  if (least !== undefined) checkAmount('least', least)
  if (!(lapsesAfterMs > 0)) throw new RangeError('lapsesAfterMs must be above 0.')
}

export function endedCounter(counter: string): RangeError {
  return new RangeError(
    `The counter ${counter} ends before the store's present: the store and its user need the same clock.`,
  )
}

export function takenTicket(): RangeError {
  return new RangeError('The ticket is taken: tickets must be unique for ever.')
}

/** Throws for NaN, fractions, negative amounts and unsafe integers: they would break every later comparison. */
export function checkAmount(name: string, amount: number): void {
  if (Number.isSafeInteger(amount) && amount >= 0) return
  throw new RangeError(`The amount of ${name} is ${amount}; a whole number from 0 to 2^53 - 1 was expected.`)
}
