import type { CutOff } from '../billing/clamp.ts'
import type { JsonObject } from '../core/json.ts'
import type { Audit } from '../records/audit.ts'
import type { Finished } from '../records/finished.ts'
import type { Metrics } from '../records/metrics.ts'
import type { RequestLog } from '../records/request-log.ts'
import type { Outcome, Reached, Records } from './stages.ts'

export interface Books {
  readonly audit: Audit
  readonly metrics: Metrics
  readonly log: RequestLog
  readonly now: () => number
}

/** The event of a request that failed by a fault of the gateway. */
export const INTERNAL = 'a request failed by a fault of the gateway'

/**
 * Writes each finished request into the metrics, the log and, where it used a key, the audit trail. Requests without a
 * known key stay out of the trail: whoever has no key must not be able to fill it.
 */
export function createRecords({ audit, metrics, log, now }: Books): Records {
  const failed: Records['failed'] = (event, cause, fields) => log.failure(event, cause, now(), fields)
  return {
    failed,
    record: async (reached, outcome) => {
      const finished = finishedOf(reached, outcome, now())
      metrics.record(finished)
      if (outcome.failure?.kind === 'internal') failed(INTERNAL, outcome.failure, { request_id: reached.id })
      log.write(finished)
      const cutOff = outcome.bill?.cutOff
      if (cutOff !== undefined) log.event('WARN', IMPLAUSIBLE, now(), cutOffFields(reached, cutOff))
      if (finished.keyId !== undefined) await audit.write(finished)
    },
    unsettled: (reserved, used, cause) => {
      failed('the store did not take a settlement; it is tried again', cause, {
        request_id: reserved.id,
        virtual_key_id: reserved.key.id,
        billed_nano_usd: used.billed,
        tokens: used.promptTokens + used.completionTokens,
      })
    },
  }
}

const IMPLAUSIBLE = 'an upstream reported more tokens than the call can have used; the excess is not billed'

function cutOffFields(reached: Reached, { promptTokens, completionTokens }: CutOff): JsonObject {
  return {
    request_id: reached.id,
    virtual_key_id: 'key' in reached ? reached.key.id : null,
    provider: 'route' in reached ? (reached.route?.provider.name ?? null) : null,
    model: 'route' in reached ? (reached.route?.model.id ?? null) : null,
    prompt_tokens_cut: promptTokens,
    completion_tokens_cut: completionTokens,
  }
}

function finishedOf(reached: Reached, outcome: Outcome, at: number): Finished {
  const tier = tierOf(reached)
  return {
    requestId: reached.id,
    keyId: 'key' in reached ? reached.key.id : undefined,
    model: 'resolved' in reached ? reached.resolved.name : undefined,
    status: outcome.status,
    ...(outcome.failure !== undefined && { failure: outcome.failure.kind }),
    at,
    latencyMs: at - reached.startedAt,
    ...(tier !== undefined && { tier }),
    ...(outcome.bill !== undefined && { bill: outcome.bill }),
    ...('plan' in reached && reached.plan.kind === 'ask' && { tiers: reached.plan.optimized.verdicts }),
  }
}

function tierOf(reached: Reached): Finished['tier'] {
  return 'plan' in reached && reached.plan.kind === 'ask' ? reached.plan.optimized.rewrite?.tier : undefined
}
