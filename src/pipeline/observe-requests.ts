import type { ExcessUsage } from '../billing/bill.ts'
import type { Audit } from '../records/audit.ts'
import type { FinishedRequest } from '../records/finished-request.ts'
import type { Metrics } from '../records/metrics.ts'
import type { LogEventFields, RequestLog } from '../records/request-log.ts'
import type { Exchange, RequestOutcome } from './exchange.ts'
import type { Observers } from './services.ts'

export interface ObserverTargets {
  readonly audit: Audit
  readonly metrics: Metrics
  readonly log: RequestLog
  readonly now: () => number
}

export const INTERNAL_FAILURE = 'a request failed because of an internal error'

/**
 * Returns the observers that write each finished request to the metrics, the log and the audit trail. The audit trail
 * omits requests without a known key, because callers without a key must not be able to fill it.
 */
export function createObservers({ audit, metrics, log, now }: ObserverTargets): Observers {
  const reportFailure: Observers['reportFailure'] = (event, cause, fields) => log.failure(event, cause, now(), fields)
  return {
    reportFailure,
    observeRequest: (exchange, outcome) => {
      const finished = finishedOf(exchange, outcome, now())
      metrics.record(finished)
      if (outcome.failure?.kind === 'internal')
        reportFailure(INTERNAL_FAILURE, outcome.failure, { request_id: exchange.id })
      const excessUsage = outcome.bill?.excessUsage
      if (excessUsage !== undefined)
        log.event('WARN', IMPLAUSIBLE_USAGE, now(), excessUsageFields(exchange, excessUsage))
      log.write(finished)
      // If there is a reservation, its settlement contains the audit record.
      const hasReservation = exchange.reservation !== undefined
      return finished.keyId === undefined || hasReservation ? undefined : audit.write(finished)
    },
    auditEntries: (exchange, outcome) =>
      exchange.key === undefined ? [] : audit.entriesOf(finishedOf(exchange, outcome, now())),
    reportUnsettled: (reserved, used, cause) => {
      reportFailure('the store did not accept a settlement; it will be retried', cause, {
        request_id: reserved.id,
        virtual_key_id: reserved.key.id,
        billed_nano_usd: used.billed,
        tokens: used.promptTokens + used.completionTokens,
      })
    },
  }
}

const IMPLAUSIBLE_USAGE = 'an upstream reported more tokens than the call could have used; the excess is not billed'

function excessUsageFields(
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

/** Returns the record of a finished request. The settlement, the metrics and the log share it. */
function finishedOf(exchange: Exchange, outcome: RequestOutcome, finishedAt: number): FinishedRequest {
  const { finished, id, key, resolved, plan, startedAt } = exchange
  if (finished !== undefined) return finished
  const optimization = plan?.kind === 'upstream' ? plan.optimization : undefined
  return (exchange.finished = {
    requestId: id,
    keyId: key?.id,
    model: resolved?.name,
    status: outcome.status,
    failure: outcome.failure?.kind,
    at: finishedAt,
    latencyMs: finishedAt - startedAt,
    tier: optimization?.rewrite?.tier,
    bill: outcome.bill,
    tiers: optimization?.verdicts,
  })
}
