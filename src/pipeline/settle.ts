import type { Bill } from '../billing/bill.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { ZERO } from '../core/money.ts'
import type { Used } from '../governance/reservation.ts'
import { billForFailure, billForLeft, prepareBill } from './charge.ts'
import type { Exchange, Planned, Reserved } from './exchange.ts'
import type { AskPlan, RequestOutcome } from './request-values.ts'
import type { Services } from './services.ts'
import { waitForStore } from './store-wait.ts'

/** An exchange of which the model is known. */
type Billed = Exchange & Pick<Planned, 'resolved'>

/** Ends a request that was answered, in whole or in part: its usage replaces what was reserved, and is recorded. */
export function settle(
  answered: Billed,
  outcome: RequestOutcome & { readonly bill: Bill },
  services: Services,
): MaybePromise<void> {
  return end(answered, usedBy(answered, outcome.bill), outcome, services)
}

/**
 * Ends a request that was refused, failed or was left before its answer. What was reserved is given back, except for what
 * `billForFailure` and `billForLeft` state. The items of a batch have no caller who could leave: an item that is ended
 * early is tried again.
 */
export function release(exchange: Exchange, outcome: RequestOutcome, services: Services): MaybePromise<void> {
  if (!isPlanned(exchange)) return end(exchange, nothingUsed(exchange), outcome, services)
  const isLeft = exchange.cancellation.isCancelled && exchange.subscribers !== undefined
  return chain(prepareBill(exchange), () => {
    const bill = isLeft ? billForLeft(exchange) : billForFailure(exchange)
    if (bill === undefined) return end(exchange, nothingUsed(exchange), outcome, services)
    return end(exchange, usedBy(exchange, bill), { ...outcome, bill }, services)
  })
}

function isPlanned(exchange: Exchange): exchange is Planned {
  return exchange.plan !== undefined
}

/** The only place that settles. Further calls do nothing, so a request settles once however it ends. */
function end(exchange: Exchange, used: Used, outcome: RequestOutcome, services: Services): MaybePromise<void> {
  if (exchange.isEnded) return
  exchange.isEnded = true
  exchange.room?.leave()
  const settled = settleReservation(exchange, used, outcome, services)
  const observed = services.observers.observeRequest(exchange, outcome)
  if (exchange.plan?.kind === 'ask') finish(exchange.plan, outcome, services)
  // A settlement or audit record that takes too long goes on without the caller.
  const ended = isPromise(observed) ? observed.then(() => settled) : settled
  return isPromise(ended) ? waitAtMost(exchange, ended, services) : ended
}

async function waitAtMost(exchange: Exchange, ended: Promise<void>, services: Services): Promise<void> {
  try {
    await waitForStore(exchange, ended, services)
  } catch {}
}

/** Nothing that is kept of an answer can fail the request. */
function finish({ keep, optimized, marked }: AskPlan, outcome: RequestOutcome, { observers }: Services): void {
  try {
    keep.finish(outcome)
    if (optimized.reportCacheRead === undefined && marked === undefined) return
    const usage = outcome.completion?.().usage
    if (usage === undefined) return
    // The next turn of the conversation learns what its upstream read from its cache.
    void optimized.reportCacheRead?.(usage.cacheReadTokens)
    void marked?.report(usage)
  } catch (cause) {
    observers.failed('an answered request could not be kept for later ones', cause)
  }
}

/** Never rejects: what the store did not take is logged and tried again. */
function settleReservation(
  exchange: Exchange,
  used: Used,
  outcome: RequestOutcome,
  { observers }: Services,
): MaybePromise<void> {
  const { reservation } = exchange
  if (reservation === undefined) return
  const failed = (cause: unknown): void => observers.unsettled(exchange as Reserved, used, cause)
  try {
    const settled = reservation.settle(used, observers.auditEntries(exchange, outcome))
    return isPromise(settled) ? settled.catch(failed) : settled
  } catch (cause) {
    failed(cause)
  }
}

/** A cache hit uses no tokens of a limit: nothing was sent. */
function usedBy({ resolved }: Billed, bill: Bill): Used {
  const isHit = bill.cache === 'HIT'
  return {
    promptTokens: isHit ? 0 : bill.optimizedTokens,
    completionTokens: isHit ? 0 : bill.completionTokens,
    savedTokens: bill.originalTokens - bill.optimizedTokens,
    theoretical: bill.theoretical,
    actual: bill.actual,
    billed: bill.billed,
    model: resolved.name,
  }
}

function nothingUsed({ resolved }: Exchange): Used {
  return {
    promptTokens: 0,
    completionTokens: 0,
    savedTokens: 0,
    theoretical: ZERO,
    actual: ZERO,
    billed: ZERO,
    model: resolved?.name ?? '',
  }
}
