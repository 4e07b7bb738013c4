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
    recordOutput(planned, outcome, services)
    reportSentPrompt(plan, outcome)
  } catch (cause) {
    services.log.failure('a response could not be stored for later requests', cause)
  }
}

/** Batch items have no client that would want to know the expected amounts. */
function recordOutput(
  { key, resolved, grant, hasClient }: Planned,
  { bill, completion }: RequestOutcome,
  { recentOutputs }: Services,
): void {
  if (completion === undefined || !hasClient || grant.outputTokens === 0) return
  recentOutputs.record(key.id, resolved.name, bill?.completionTokens ?? 0)
}

function reportSentPrompt({ optimization, markers }: UpstreamPlan, { bill, completion }: RequestOutcome): void {
  if (optimization.reportSent === undefined && markers === undefined) return
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
