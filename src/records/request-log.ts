import type { JsonObject } from '../core/json.ts'
import { GatewayError } from '../core/errors.ts'
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
  /** An ERROR event with name, message and stack of what was thrown. */
  failure(event: string, cause: unknown, at: number, fields?: JsonObject): void
  /** Records that the sink refused, or that came while too many others were under way. */
  dropped(): number
}

const LONGEST_TEXT = 300
const LONGEST_STACK = 4_000
/** Causes that are followed. */
const DEEPEST = 8

export function createRequestLog(sink: Sink<JsonObject> | undefined, service: string = 'sluice'): RequestLog {
  const { hand, dropped } = guardSink(sink)
  const event: RequestLog['event'] = (level, name, at, fields = {}) =>
    hand({ ...fields, timestamp: new Date(at).toISOString(), level, service, event: name.slice(0, LONGEST_TEXT) })
  return {
    event,
    failure: (name, cause, at, fields) => event('ERROR', name, at, { ...fields, cause: describeCause(cause) }),
    write: (finished) => {
      if (sink !== undefined) hand(requestRecord(finished, service))
    },
    dropped,
  }
}

/** A GatewayError of kind `internal` says only that something failed: its cause is described in its place. */
function describeCause(thrown: unknown): JsonObject {
  let cause = thrown
  for (let depth = 0; depth < DEEPEST && isInternal(cause) && cause.cause !== undefined; depth += 1) {
    cause = cause.cause
  }
  if (typeof cause === 'string') return { name: 'string', message: cause.slice(0, LONGEST_TEXT) }
  if (!(cause instanceof Error)) return { name: typeof cause, message: 'A value that is not an Error was thrown.' }
  const { name, message, stack = '' } = cause
  return { name, message: message.slice(0, LONGEST_TEXT), stack: stack.slice(0, LONGEST_STACK) }
}

function isInternal(cause: unknown): cause is GatewayError {
  return GatewayError.is(cause) && cause.kind === 'internal'
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
