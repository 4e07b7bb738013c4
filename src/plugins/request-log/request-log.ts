import { isThenable, lazy } from '../../core/async.ts'
import type { FailureKind } from '../../core/errors.ts'
import { describeCause, errorCodeOf, type LoggedCause } from '../../core/logged-cause.ts'
import { toCents, toDollars, ZERO } from '../../core/money.ts'
import {
  type FinalOutcome,
  outcomeOf,
  type FinishedRequest,
  truncateName,
  type TierOutcome,
} from '../../kernel/finished-request.ts'
import type { LogEventFields } from '../../core/failure-log.ts'

/**
 * Severity of a log record. A request record has the level INFO for the outcome `left`. Otherwise, the level is WARN
 * for a 4xx status, ERROR for a 5xx status, and INFO for any other. The gateway does not write DEBUG records.
 */
export type LogLevel = 'ERROR' | 'WARN' | 'INFO' | 'DEBUG'

/** The fields of every log record. */
export interface LogLine {
  /** ISO 8601. */
  readonly timestamp: string
  readonly level: LogLevel
  readonly service: string
}

/** The log record of a finished request. */
export interface RequestLogRecord extends LogLine {
  readonly event?: undefined
  /** The response's `X-Request-Id`. Each attempt at a batch item has its own id. */
  readonly request_id: string
  /** null: the request had no known key. */
  readonly virtual_key_id: string | null
  /** Model name in the request, or its path if it has none. null: the request ended before its model was resolved. */
  readonly model: string | null
  /** Prompt tokens before optimization. */
  readonly original_tokens: number
  /** Prompt tokens sent to the upstream. */
  readonly optimized_tokens: number
  /** The value of `X-Svc-Strategy`. null: the request has no bill. */
  readonly strategy: string | null
  /** Billed amount in cents, rounded half up. */
  readonly cost_cents: number
  /** Cost at list price without optimization. Dollar amounts are rounded to six decimal places. */
  readonly theoretical_usd: number
  /** Amount paid to upstreams. */
  readonly actual_usd: number
  readonly billed_usd: number
  /** Outcome and reason of each tier that was checked. */
  readonly tiers: readonly TierOutcome[]
  readonly latency_ms: number
  /** The HTTP status of the response; 499 for the outcome `left`. */
  readonly status: number
  readonly outcome: FinalOutcome
  readonly failure: FailureKind | null
  /** Of the context of the request. Absent if it has none. */
  readonly customer?: string
  readonly user?: string
  readonly session?: string
  /** Code of the error that caused the failure, such as `ECONNREFUSED`. Absent if there is none. */
  readonly error_code?: string
}

/** The log record of a gateway event, such as a warning or a failure. */
export interface EventLogRecord extends LogLine, LogEventFields {
  /** Name of the event. */
  readonly event: string
  readonly cause?: LoggedCause
}

/** A log record. `event` is undefined in request records. */
export type LogRecord = RequestLogRecord | EventLogRecord

export interface RequestLog {
  write(finished: FinishedRequest): void
  event(level: LogLevel, event: string, at: number, fields?: EventFields): void
  failure(event: string, cause: unknown, at: number, fields?: LogEventFields): void
  dropped(): number
}

type EventFields = LogEventFields & Pick<EventLogRecord, 'cause'>

const SERVICE = 'sluice'
const MAX_TEXT_LENGTH = 300

/** @param stderr Receives a line for each failure if there is no sink. @default the platform's stderr */
export function createRequestLog(sink: Sink | undefined, stderr?: (line: string) => void): RequestLog {
  const { write, dropped } = guardSink(sink)
  const event: RequestLog['event'] = (level, name, at, fields = {}) => write(eventRecord(level, name, at, fields))
  const loadPrinter = lazy(async () =>
    (await import('../../core/failure-log.ts')).createStderrLog(stderr ?? writeToStderr),
  )
  return {
    event,
    failure: (name, cause, at, fields) => {
      const record = eventRecord('ERROR', name, at, { ...fields, cause: describeCause(cause) })
      if (sink !== undefined) return write(record)
      // A failure to print cannot be reported.
      loadPrinter()
        .then((print) => print(record))
        .catch(() => {})
    },
    write: (finished) => {
      if (sink === undefined) return
      const record = requestRecord(finished)
      const code = errorCodeOf(finished.cause)
      write(code === undefined ? record : { ...record, error_code: code })
    },
    dropped,
  }
}

function writeToStderr(line: string): void {
  // eslint-disable-next-line no-console -- It writes to stderr on every runtime.
  console.error(line)
}

function eventRecord(level: LogLevel, name: string, at: number, fields: EventFields): EventLogRecord {
  return {
    ...fields,
    timestamp: new Date(at).toISOString(),
    level,
    service: SERVICE,
    event: name.slice(0, MAX_TEXT_LENGTH),
  }
}

function requestRecord(finished: FinishedRequest): RequestLogRecord {
  const { bill, context = {} } = finished
  const { customer, user, session } = context
  const outcome = outcomeOf(finished)
  return {
    timestamp: new Date(finished.at).toISOString(),
    level: LEVELS[outcome],
    service: SERVICE,
    request_id: finished.requestId,
    virtual_key_id: finished.keyId ?? null,
    model: truncateName(finished.model),
    original_tokens: bill?.originalTokens ?? 0,
    optimized_tokens: bill?.optimizedTokens ?? 0,
    strategy: bill?.strategy.slice(0, MAX_TEXT_LENGTH) ?? null,
    cost_cents: toCents(bill?.billed ?? ZERO),
    theoretical_usd: toDollars(bill?.theoretical ?? ZERO),
    actual_usd: toDollars(bill?.actual ?? ZERO),
    billed_usd: toDollars(bill?.billed ?? ZERO),
    tiers: (finished.tiers ?? []).map(({ tier, outcome, reason }) => ({
      tier,
      outcome,
      reason: reason.slice(0, MAX_TEXT_LENGTH),
    })),
    latency_ms: Math.round(finished.latencyMs),
    status: finished.status,
    outcome,
    failure: finished.failure ?? null,
    ...(customer !== undefined && { customer }),
    ...(user !== undefined && { user }),
    ...(session !== undefined && { session }),
  }
}

const LEVELS: Readonly<Record<FinalOutcome, LogLevel>> = {
  answered: 'INFO',
  left: 'INFO',
  refused: 'WARN',
  failed: 'ERROR',
}

/** Requests do not wait for the result. A record is dropped if the sink throws or rejects, or has too many pending. */
type Sink = (record: LogRecord) => unknown

const MAX_PENDING_RECORDS = 1_000

function guardSink(sink: Sink | undefined) {
  let dropped = 0
  let pending = 0
  const countDropped = (): void => void (dropped += 1)

  function write(record: LogRecord): void {
    if (sink === undefined) return
    if (pending >= MAX_PENDING_RECORDS) return countDropped()
    try {
      const result = sink(record)
      if (!isThenable(result)) return
      pending += 1
      void Promise.resolve(result)
        .catch(countDropped)
        .finally(() => (pending -= 1))
    } catch {
      countDropped()
    }
  }

  return { write, dropped: () => dropped }
}
