import type { JsonObject } from '../core/json.ts'
import { toCents, toDollars, ZERO } from '../core/money.ts'
import { endingOf, shortened, type Finished } from './finished.ts'
import { guardSink, type Sink } from './guarded-sink.ts'

export type LogLevel = 'ERROR' | 'WARN' | 'INFO' | 'DEBUG'

/** Hands log records to the operator's sink so that nothing the sink does reaches a request. */
export interface RequestLog {
  /** The record of a finished request. */
  write(finished: Finished): void
  /** An event that is no request. Its fields must hold no secrets and no text of prompts. */
  event(level: LogLevel, event: string, at: number, fields?: JsonObject): void
  /** Records that the sink refused, or that came while too many others were under way. */
  dropped(): number
}

const LONGEST_TEXT = 300

export function createRequestLog(sink: Sink<JsonObject> | undefined, service: string = 'sluice'): RequestLog {
  const { hand, dropped } = guardSink(sink)
  return {
    write: (finished) => {
      if (sink !== undefined) hand(requestRecord(finished, service))
    },
    event: (level, event, at, fields = {}) =>
      hand({ ...fields, timestamp: new Date(at).toISOString(), level, service, event: event.slice(0, LONGEST_TEXT) }),
    dropped,
  }
}

/** The fields of the specification, and how the request ended. */
function requestRecord(finished: Finished, service: string): JsonObject {
  const { bill } = finished
  return {
    timestamp: new Date(finished.at).toISOString(),
    level: levelOf(finished),
    service,
    request_id: finished.requestId,
    virtual_key_id: finished.keyId ?? null,
    model: shortened(finished.model),
    original_tokens: bill?.originalTokens ?? 0,
    optimized_tokens: bill?.optimizedTokens ?? 0,
    strategy: bill?.strategy.slice(0, LONGEST_TEXT) ?? null,
    cost_cents: toCents(bill?.billed ?? ZERO),
    theoretical_usd: toDollars(bill?.theoretical ?? ZERO),
    actual_usd: toDollars(bill?.actual ?? ZERO),
    billed_usd: toDollars(bill?.billed ?? ZERO),
    tiers: (finished.tiers ?? []).map(({ tier, outcome, reason }) => ({
      tier,
      outcome,
      reason: reason.slice(0, LONGEST_TEXT),
    })),
    latency_ms: Math.round(finished.latencyMs),
    status: finished.status,
    outcome: endingOf(finished),
    failure: finished.failure ?? null,
  }
}

function levelOf(finished: Finished): LogLevel {
  const ending = endingOf(finished)
  if (ending === 'failed') return 'ERROR'
  return ending === 'refused' ? 'WARN' : 'INFO'
}
