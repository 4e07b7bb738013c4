/** One call of a provider, and what its failure means for the circuit breaker. */
import { GatewayError } from '../core/errors.ts'
import type { Runtime, Timeouts, Route } from '../core/ports.ts'
import type { AttemptRecord, UpstreamRequest } from '../upstream/attempts.ts'
import type { CircuitBreaker, CircuitPermit } from './circuit-breaker.ts'

export interface FailoverOptions {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  readonly tries?: number
  readonly breaker?: CircuitBreaker
}

export interface UpstreamAttempt {
  readonly options: Required<FailoverOptions>
  readonly call: UpstreamRequest
  readonly candidate: Route
  readonly circuit: string
  readonly isFirstCandidate: boolean
  readonly isLastCandidate: boolean
  readonly permit: CircuitPermit
  /** Starts at 1 for each candidate. */
  readonly number: number
  readonly record: AttemptRecord
}

const UPSTREAM_FAULTS: ReadonlySet<string> = new Set(['upstream', 'upstream-timeout', 'overloaded'])

export function reportFailure(attempt: UpstreamAttempt, error: unknown): void {
  const { options, call, permit, isFirstCandidate, number } = attempt
  if (call.cancellation.isCanceled || !GatewayError.is(error)) return permit.discard()
  const isFault = UPSTREAM_FAULTS.has(error.kind) && error.details.isLocalFault !== true
  // A later attempt has less time than `timeouts.totalMs`, so a timeout at its end is not the upstream's fault.
  const hadFullTimeout = isFirstCandidate && number === 1
  const isCutShort = error.kind === 'upstream-timeout' && !hadFullTimeout && remainingMs(options, call) <= 0
  if (isFault && !isCutShort) permit.recordFailure(options.runtime.now())
  else permit.discard()
}

export function remainingMs({ runtime, timeouts }: FailoverOptions, { startedAt }: UpstreamRequest): number {
  return startedAt + timeouts.totalMs - runtime.now()
}
