/**
 * What later requests learn from one that has ended: the response to equal questions, the usual length of responses, and
 * what the vendor has cached. Failures are logged, because they must not fail the request.
 */
import type { Planned, UpstreamPlan } from './exchange.ts'
import type { RequestOutcome } from './finished-request.ts'
import type { Services } from './services.ts'

export function informLaterRequests(planned: Planned, outcome: RequestOutcome, services: Services): void {
  const { plan } = planned
  try {
    plan.keeper?.finish(outcome)
    if (plan.kind === 'replay') return
    const { key, resolved, grant, hasClient } = planned
    // A batch item has no client that would want to know the expected amounts.
    if (outcome.completion !== undefined && hasClient && grant.outputTokens > 0)
      services.recentOutputs.record(key.id, resolved.name, outcome.bill?.completionTokens ?? 0)
    if (plan.optimization.reportSent !== undefined || plan.markers !== undefined) reportSentPrompt(plan, outcome)
  } catch (cause) {
    services.log.failure('a response could not be stored for later requests', cause)
  }
}

function reportSentPrompt({ optimization, markers }: UpstreamPlan, { bill, completion }: RequestOutcome): void {
  const usage = completion?.().usage
  // Later turns assume that the vendor has cached this prompt. Otherwise, a rejected request would make them cheaper.
  const sentTokens = bill?.optimizedTokens ?? 0
  if (sentTokens > 0) void optimization.reportSent?.({ promptTokens: sentTokens, usage })
  if (usage !== undefined) void markers?.report(usage)
}

/** Lets a shadow trial compare the response with the prompt that it would have sent. Call it after the settlement. */
export function reportResponse(
  { optimization }: UpstreamPlan,
  { completion }: RequestOutcome,
  { log }: Services,
): void {
  try {
    optimization.reportResponse?.(completion?.().parts)
  } catch (cause) {
    log.failure('the shadow run of a savings tier failed', cause)
  }
}
