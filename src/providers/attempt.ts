import type { AnswerSource, StreamChunk } from '../core/answer.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { ProviderCall, Runtime, Timeouts, Route } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { AttemptRecord, Attempts } from '../upstream/attempts.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'
import type { CircuitBreaker, CircuitPermit } from './circuit-breaker.ts'

/** Fields that all provider calls of a request share. */
export interface FailoverRequest extends Pick<ProviderCall, 'headers'> {
  readonly cancellation: Cancellation
  readonly keyId: string
  /** When `timeouts.total` starts, in milliseconds since 1970. */
  readonly startedAt: number
  /** Records every call for the bill. */
  readonly attempts: Attempts
}

export interface FailoverCall extends FailoverRequest {
  /** The prompt depends on the candidate, because providers require different fields. */
  readonly promptFor: (candidate: Route) => Prompt
}

/** Returns the stream of a candidate's answer for the caller. Called once for each provider call. */
export type CreateStream = (candidate: Route, answer: AsyncIterable<StreamChunk> | AnswerSource) => UpstreamStream

export interface FailoverOptions {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** Maximum number of calls to one candidate. @default 3 */
  readonly tries?: number
  readonly breaker?: CircuitBreaker
}

export interface UpstreamAttempt {
  readonly options: Required<FailoverOptions>
  readonly call: FailoverRequest
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

export function throwIfFinal(error: unknown, { cancellation }: FailoverRequest): void {
  // Other candidates would also reject the request.
  const isRejection = GatewayError.is(error) && error.kind === 'upstream-rejected'
  if (isRejection || cancellation.isCanceled) throw error
}

const UPSTREAM_FAULTS: ReadonlySet<string> = new Set(['upstream', 'upstream-timeout', 'overloaded'])

/** Reports a failure to the circuit breaker if the upstream caused it. */
export function reportFailure(attempt: UpstreamAttempt, error: unknown): void {
  const { options, call, permit, isFirstCandidate, number } = attempt
  if (call.cancellation.isCanceled || !GatewayError.is(error)) return permit.discard()
  const isFault = UPSTREAM_FAULTS.has(error.kind) && error.details.isLocalFault !== true
  // Later attempts have less time than `timeouts.total`, so their timeouts are not the upstream's fault.
  const hadFullTimeout = isFirstCandidate && number === 1
  const isCutShort = error.kind === 'upstream-timeout' && !hadFullTimeout && remainingMs(options, call) <= 0
  if (isFault && !isCutShort) permit.recordFailure(options.runtime.now())
  else permit.discard()
}

/** Returns the remaining time of `timeouts.total` in milliseconds. */
export function remainingMs({ runtime, timeouts }: FailoverOptions, { startedAt }: FailoverRequest): number {
  return startedAt + timeouts.total - runtime.now()
}

/**
 * Resolves when the stream has content, or after `holdMs` milliseconds.
 * @param hasDeadline False for streams of custom providers, which do not enforce `timeouts.total` themselves.
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
  const cancelTimer = hasDeadline ? noop : runtime.after(Math.max(1, remainingMs(options, call)), onTimeout)
  const opened = stream.open(runtime, holdMs)
  // An abort before `open` would leave its promise pending. The listener is called immediately if the client has
  // already disconnected.
  const unsubscribe = call.cancellation.onCancel(() => stream.abort(call.cancellation.reason))
  try {
    await opened
  } catch (error) {
    cancelTimer()
    throw error
  } finally {
    unsubscribe()
  }
  const endWith = (report: () => void): void => {
    cancelTimer()
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

function noop(): void {}
