import type { AnswerSource, StreamChunk } from '../core/answer.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import type { Provider, ProviderCall, Runtime, Timeouts } from '../core/ports.ts'
import type { Attempt as PaidAttempt, Attempts } from '../upstream/attempts.ts'
import type { AnswerTranslator } from '../upstream/answer-translator.ts'
import { createChunkSource, isSource, UpstreamStream } from '../upstream/upstream-stream.ts'
import type { CircuitBreaker, CircuitPass } from './circuit-breaker.ts'

/** A provider and a model that can answer a request. */
export interface Candidate {
  readonly provider: Provider
  readonly model: Model
}

/** Fields that all provider calls of a request share. */
export interface FailoverRequest extends Pick<ProviderCall, 'headers'> {
  readonly cancellation: Cancellation
  readonly keyId: string
  /** When `timeouts.total` starts, in milliseconds since 1970. */
  readonly startedAt: number
  /** Records every call for the bill. */
  readonly attempts: Attempts
}

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
  readonly candidate: Candidate
  /** `<provider>/<model_id>`. */
  readonly circuit: string
  readonly isFirstCandidate: boolean
  readonly isLastCandidate: boolean
  readonly pass: CircuitPass
  /** Starts at 1 for each candidate. */
  readonly number: number
  readonly paid: PaidAttempt
}

export function throwIfFinal(error: unknown, { cancellation }: FailoverRequest): void {
  // Other candidates would also reject the request.
  const isRefusal = GatewayError.is(error) && error.kind === 'upstream-rejected'
  if (isRefusal || cancellation.isCancelled) throw error
}

const FAULTS: ReadonlySet<string> = new Set(['upstream', 'upstream-timeout', 'overloaded'])

/** Only failures that the upstream caused count. */
export function reportFailure(attempt: UpstreamAttempt, error: unknown): void {
  const { options, call, pass, isFirstCandidate, number } = attempt
  if (call.cancellation.isCancelled || !GatewayError.is(error)) return pass.undecided()
  const isFault = FAULTS.has(error.kind) && error.details.isCallerSide !== true
  // Later attempts have less time than `timeouts.total`, so their timeouts are not the upstream's fault.
  const hadFullTimeout = isFirstCandidate && number === 1
  const isCutShort = error.kind === 'upstream-timeout' && !hadFullTimeout && msLeft(options, call) <= 0
  if (isFault && !isCutShort) pass.failed(options.runtime.now())
  else pass.undecided()
}

/** Returns the remaining time of `timeouts.total` in milliseconds. */
export function msLeft({ runtime, timeouts }: FailoverOptions, { startedAt }: FailoverRequest): number {
  return startedAt + timeouts.total - runtime.now()
}

interface Translating {
  readonly translatorFor: (candidate: Candidate, source: AnswerSource) => AnswerTranslator
}

/** Resolves when the stream has content. */
export async function openStream(
  attempt: UpstreamAttempt,
  call: FailoverRequest & Translating,
  { answer, holdMs }: { readonly answer: AsyncIterable<StreamChunk> | AnswerSource; readonly holdMs: number },
): Promise<UpstreamStream> {
  const { options, candidate, pass, paid } = attempt
  const { runtime, timeouts } = options
  const { name } = candidate.provider
  const source = isSource(answer) ? answer : createChunkSource(answer, name)
  const stream = new UpstreamStream(source, call.translatorFor(candidate, source))
  paid.answered(stream.translator)
  // Streams of custom providers have no deadline.
  const late = (): void => stream.breakOff(tooSlow(name, timeouts.total))
  const cancel = isSource(answer) ? noop : runtime.after(Math.max(1, msLeft(options, call)), late)
  const opened = stream.open(runtime, holdMs)
  // Called synchronously if the client has already disconnected.
  const unsubscribe = call.cancellation.onCancel(() => stream.abort(call.cancellation.reason))
  try {
    await opened
  } catch (error) {
    cancel()
    throw error
  } finally {
    unsubscribe()
  }
  const end = (count: () => void): void => {
    cancel()
    count()
  }
  stream.countEnd({
    completed: () => end(() => pass.succeeded(runtime.now())),
    failed: (error) => end(() => reportFailure(attempt, error)),
    disconnected: () => end(() => pass.undecided()),
  })
  return stream
}

function tooSlow(provider: string, totalMs: number): GatewayError {
  const message = `The provider "${provider}" did not finish its answer within ${totalMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isCallerSide: true })
}

function noop(): void {}
