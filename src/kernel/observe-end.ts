/** Reports the end of a request to the plugins and the log. */
import type { ExcessUsage } from '../billing/bill.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import type { Exchange } from './exchange.ts'
import type { Services } from './services.ts'
import type { FinishedRequest, RequestOutcome } from './finished-request.ts'
import type { LogEventFields } from '../core/failure-log.ts'
import { requestLine, INTERNAL_FAILURE } from './failures.ts'

/** Calls the hooks for the end of a request, also for one that reserves nothing. */
export function observeEnd(exchange: Exchange, outcome: RequestOutcome, services: Services): MaybePromise<void> {
  const { settlement } = exchange
  if (settlement === undefined) return callEndHooks(exchange, outcome, services)
  settlement.observe(outcome, () => callEndHooks(exchange, outcome, services))
}

export function callEndHooks(exchange: Exchange, outcome: RequestOutcome, services: Services): MaybePromise<void> {
  const { hooks, log } = services
  const finished = finishedOf(exchange, outcome, services)
  if (outcome.failure?.kind === 'internal') {
    log.failure(INTERNAL_FAILURE, outcome.failure, { request_id: exchange.id, route: requestLine(exchange.request) })
  }
  const excessUsage = outcome.bill?.excessUsage
  if (excessUsage !== undefined) log.warning(IMPLAUSIBLE_USAGE, excessUsageFields(exchange, excessUsage))
  let pending: Promise<void> | undefined
  for (const onEnd of hooks.onEnd) {
    const observed = onEnd(finished, exchange, outcome)
    if (isPromise(observed)) pending = pending === undefined ? observed : pending.then(() => observed)
  }
  return pending
}

export const IMPLAUSIBLE_USAGE =
  'an upstream reported more tokens than the call could have used; the excess is not billed'

export function excessUsageFields(
  { id, key, route }: Exchange,
  { promptTokens, completionTokens }: ExcessUsage,
): LogEventFields {
  return {
    request_id: id,
    virtual_key_id: key?.id ?? null,
    provider: route?.provider.name ?? null,
    model: route?.model.id ?? null,
    prompt_tokens_cut: promptTokens,
    completion_tokens_cut: completionTokens,
  }
}

/** The settlement and all hooks share one record. */
export function finishedOf(exchange: Exchange, outcome: RequestOutcome, { runtime }: Services): FinishedRequest {
  const { finished, id, key, caller, resolved, plan, startedAt } = exchange
  if (finished !== undefined) return finished
  const finishedAt = runtime.now()
  const optimization = plan?.kind === 'upstream' ? plan.optimization : undefined
  return (exchange.finished = {
    requestId: id,
    keyId: key?.id,
    context: caller?.context,
    model: resolved?.name,
    status: outcome.status,
    failure: outcome.failure?.kind,
    cause: outcome.failure?.cause,
    at: finishedAt,
    latencyMs: finishedAt - startedAt,
    tier: optimization?.rewrite?.tier,
    bill: outcome.bill,
    tiers: optimization?.verdicts,
  })
}
