import { GatewayError } from '../core/errors.ts'
import type { Runtime, Timeouts, Route } from '../core/ports.ts'
import type { AttemptRecord, UpstreamRequest } from '../upstream/attempts.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'
import type { CircuitBreaker, CircuitPermit } from './circuit-breaker.ts'

export interface FailoverOptions {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** Maximum number of calls to one candidate. @default 3 */
  readonly tries?: number
  readonly breaker?: CircuitBreaker
}

export interface UpstreamAttempt {
  readonly options: Required<FailoverOptions>
  readonly call: UpstreamRequest
  readonly candidate: Route
  /** `<provider>/<model_id>`. */
  readonly circuit: string
  readonly isFirstCandidate: boolean
  readonly isLastCandidate: boolean
  readonly permit: CircuitPermit
  /** Starts at 1 for each candidate. */
  readonly number: number
  readonly record: AttemptRecord
}

/** Throws the error unless the next candidate may answer the request. */
export function throwIfFinal(error: unknown, { cancellation }: UpstreamRequest): void {
  const isRejection = GatewayError.is(error) && error.kind === 'upstream-rejected'
  if (isRejection || cancellation.isCanceled) throw error
}

const UPSTREAM_FAULTS: ReadonlySet<string> = new Set(['upstream', 'upstream-timeout', 'overloaded'])

/** Reports a failure to the circuit breaker if the upstream caused it. */
export function reportFailure(attempt: UpstreamAttempt, error: unknown): void {
  const { options, call, permit, isFirstCandidate, number } = attempt
  if (call.cancellation.isCanceled || !GatewayError.is(error)) return permit.discard()
  const isFault = UPSTREAM_FAULTS.has(error.kind) && error.details.isLocalFault !== true
  // A later attempt has less time than `timeouts.total`, so a timeout at its end is not the upstream's fault.
  const hadFullTimeout = isFirstCandidate && number === 1
  const isCutShort = error.kind === 'upstream-timeout' && !hadFullTimeout && remainingMs(options, call) <= 0
  if (isFault && !isCutShort) permit.recordFailure(options.runtime.now())
  else permit.discard()
}

/** Returns the remaining time of `timeouts.total` in milliseconds. */
export function remainingMs({ runtime, timeouts }: FailoverOptions, { startedAt }: UpstreamRequest): number {
  return startedAt + timeouts.total - runtime.now()
}

/**
 * Resolves when the stream has content, or after `holdMs` milliseconds.
 *
 * @param hasDeadline False for the iterator of a custom provider, which may not enforce `timeouts.total`.
 */
export async function openStream(
  attempt: UpstreamAttempt,
  stream: UpstreamStream,
  hasDeadline: boolean,
  holdMs: number,
): Promise<void> {
  const { options, call, candidate, permit, record } = attempt
  const { runtime, timeouts } = options
  record.recordAnswer(stream.translator)
  const onTimeout = (): void => stream.fail(totalTimeoutError(candidate.provider.name, timeouts.total))
  const cancelTimer = hasDeadline ? undefined : runtime.after(Math.max(1, remainingMs(options, call)), onTimeout)
  const opened = stream.open(runtime, holdMs)
  // An abort before `open` would leave its promise pending. The listener is called immediately if the client has
  // already disconnected.
  const unsubscribe = call.cancellation.onCancel(() => stream.abort(call.cancellation.reason))
  try {
    await opened
  } catch (error) {
    cancelTimer?.()
    throw error
  } finally {
    unsubscribe()
  }
  const endWith = (report: () => void): void => {
    cancelTimer?.()
    report()
  }
  stream.observeEnd({
    onComplete: () => endWith(() => permit.recordSuccess(runtime.now())),
    onError: (error) => endWith(() => reportFailure(attempt, error)),
    onDisconnect: () => endWith(() => permit.discard()),
  })
}

function totalTimeoutError(provider: string, totalMs: number): GatewayError {
  const message = `The provider "${provider}" did not finish its answer within ${totalMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isLocalFault: true })
}
