import { isAnswerSource, NO_USAGE, type Completion } from '../core/answer.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import type {
  EmbeddingResult,
  EmbeddingRequest,
  ProviderCall,
  Runtime,
  ProviderAnswer,
  Timeouts,
  Route,
} from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'
import type { waitForRetry } from './retry.ts'
import { createCircuitBreaker, type CircuitReport } from './circuit-breaker.ts'
import {
  remainingMs,
  openStream,
  reportFailure,
  throwIfFinal,
  type CreateStream,
  type FailoverCall,
  type FailoverOptions,
  type FailoverRequest,
  type UpstreamAttempt,
} from './attempt.ts'

/** Maximum wait for the first content of a stream, from the first upstream call of the request, in milliseconds. */
const MAX_HOLD_MS = 5000

export interface FailoverEmbedCall extends FailoverRequest {
  readonly request: EmbeddingRequest
}

export interface FailoverAnswer<T> extends ProviderAnswer<T> {
  readonly route: Route
}

export interface Failover {
  complete(candidates: readonly Route[], call: FailoverCall): Promise<FailoverAnswer<Completion>>
  /**
   * Resolves when an upstream has responded with status 200 and either its stream has content or 5 seconds have passed
   * since this call. Until then, another candidate can replace it.
   */
  stream(
    candidates: readonly Route[],
    call: FailoverCall,
    createStream: CreateStream,
  ): Promise<FailoverAnswer<UpstreamStream>>
  /** Rejects for candidates that do not support embeddings. */
  embed(candidates: readonly Route[], call: FailoverEmbedCall): Promise<FailoverAnswer<EmbeddingResult>>
  /** Returns the circuits by `<provider>/<model_id>` that had requests recently or are not closed. */
  circuits(): Readonly<Record<string, CircuitReport>>
}

/**
 * Calls candidates in order until one answers. If `retryDelayMs` allows it, a failure before the answer begins is
 * retried after a random delay. Then the next candidate is called. `timeouts.total` limits the request across all
 * candidates. A rejection of the request itself ends the call. If every candidate fails, the call rejects with the
 * first failure.
 */
export function createFailover({
  runtime,
  timeouts,
  tries = 3,
  breaker = createCircuitBreaker(),
}: FailoverOptions): Failover {
  const options = { runtime, timeouts, tries, breaker }
  return {
    complete: (candidates, call) =>
      callInOrder(options, candidates, call, {
        send: (attempt) =>
          attempt.candidate.provider.complete(new OutgoingCall(attempt, call.promptFor(attempt.candidate))),
        accept: (attempt, answer) => {
          attempt.record.recordAnswer(answer)
          attempt.permit.recordSuccess(runtime.now())
        },
      }),
    stream: (candidates, call, createStream) => {
      const forwardAt = runtime.now() + MAX_HOLD_MS
      return callInOrder(options, candidates, call, {
        send: async (attempt) => {
          const outgoing = new OutgoingCall(attempt, call.promptFor(attempt.candidate))
          const { answer, ignored } = await attempt.candidate.provider.stream(outgoing)
          const stream = createStream(attempt.candidate, answer)
          await openStream(attempt, stream, isAnswerSource(answer), Math.max(0, forwardAt - runtime.now()))
          return { answer: stream, ignored }
        },
      })
    },
    embed: (candidates, call) =>
      callInOrder(options, candidates, call, {
        send: async (attempt) => {
          const { provider } = attempt.candidate
          if (provider.embed === undefined) throw embeddingsUnsupported(provider.name)
          const { prompt: _prompt, ...shared } = new OutgoingCall(attempt, undefined)
          const { signal } = call.cancellation
          return { answer: await provider.embed({ ...shared, signal, request: call.request }), ignored: [] }
        },
        accept: (attempt, { inputTokens }) => {
          attempt.record.recordAnswer({ usage: { ...NO_USAGE, inputTokens: inputTokens ?? 0 } })
          attempt.permit.recordSuccess(runtime.now())
        },
      }),
    circuits: () => breaker.reports(runtime.now()),
  }
}

type ResolvedOptions = Required<FailoverOptions>

interface ProviderMethod<T> {
  readonly send: (attempt: UpstreamAttempt) => Promise<ProviderAnswer<T>>
  /** Called with the answer of a successful attempt. */
  readonly accept?: (attempt: UpstreamAttempt, answer: T) => void
}

/**
 * Calls the candidates from `index` on until one answers. Creates no promise of its own, because nearly all requests
 * are answered by the first attempt.
 */
function callInOrder<T>(
  options: ResolvedOptions,
  candidates: readonly Route[],
  call: FailoverRequest,
  method: ProviderMethod<T>,
  { index, firstFailure }: Progress = FIRST_CANDIDATE,
): Promise<FailoverAnswer<T>> {
  const callNext = async (error: unknown): Promise<FailoverAnswer<T>> => {
    throwIfFinal(error, call)
    const failure = firstFailure ?? error
    if (index + 1 >= candidates.length || remainingMs(options, call) <= 0) throw failure ?? noProvider()
    return callInOrder(options, candidates, call, method, { index: index + 1, firstFailure: failure })
  }
  let attempt: UpstreamAttempt
  try {
    attempt = firstAttempt(options, candidates, index, call)
  } catch (error) {
    return callNext(error)
  }
  return callCandidate(attempt, method, callNext)
}

interface Progress {
  readonly index: number
  readonly firstFailure?: unknown
}

const FIRST_CANDIDATE: Progress = { index: 0 }

/** Returns the first attempt with a candidate. Throws `overloaded` if the circuit of the candidate is open. */
function firstAttempt(
  options: ResolvedOptions,
  candidates: readonly Route[],
  index: number,
  call: FailoverRequest,
): UpstreamAttempt {
  const candidate = candidates[index]
  if (candidate === undefined) throw noProvider()
  const { breaker, runtime } = options
  const { keyId } = call
  const circuit = circuitOf(candidate)
  const isOpen = (other: Route): boolean => breaker.isOpen(circuitOf(other), keyId)
  const hasAlternative = index + 1 < candidates.length && !candidates.slice(index + 1).every(isOpen)
  const now = runtime.now()
  const permit = breaker.admit({ circuit, keyId, now, hasAlternative })
  if (permit === undefined) throw circuitOpenError(candidate.provider.name, breaker.waitMs(circuit, keyId, now))
  return {
    options,
    call,
    candidate,
    circuit,
    isFirstCandidate: index === 0,
    isLastCandidate: index === candidates.length - 1,
    permit,
    number: 1,
    record: call.attempts.begin(candidate),
  }
}

/**
 * Calls a candidate until it answers or must not be called again.
 *
 * @param callNext Calls the next candidate after the final failure of this one.
 */
function callCandidate<T>(
  attempt: UpstreamAttempt,
  method: ProviderMethod<T>,
  callNext: (error: unknown) => Promise<FailoverAnswer<T>>,
): Promise<FailoverAnswer<T>> {
  let pendingAnswer: Promise<ProviderAnswer<T>>
  try {
    pendingAnswer = Promise.resolve(method.send(attempt))
  } catch (error) {
    // A provider that throws is handled like a provider that rejects.
    pendingAnswer = Promise.reject(error)
  }
  return pendingAnswer.then(
    (received) => {
      try {
        const { answer, ignored } = received
        method.accept?.(attempt, answer)
        return { answer, ignored, route: attempt.candidate }
      } catch (error) {
        return callAfterFailure(attempt, error, method, callNext)
      }
    },
    (error: unknown) => callAfterFailure(attempt, error, method, callNext),
  )
}

async function callAfterFailure<T>(
  attempt: UpstreamAttempt,
  error: unknown,
  method: ProviderMethod<T>,
  callNext: (error: unknown) => Promise<FailoverAnswer<T>>,
): Promise<FailoverAnswer<T>> {
  const { candidate, call, number } = attempt
  attempt.record.recordFailure(error)
  const retryModule = await loadRetryModule()
  if (retryModule === undefined) {
    reportFailure(attempt, error)
    return callNext(error)
  }
  try {
    await retryModule.waitForRetry(attempt, error)
  } catch (failure) {
    return callNext(failure)
  }
  return callCandidate({ ...attempt, number: number + 1, record: call.attempts.begin(candidate) }, method, callNext)
}

/**
 * Loads the retry module, which is needed only after a failure. Resolves with undefined if the file is missing, for
 * example during a deployment.
 */
async function loadRetryModule(): Promise<{ readonly waitForRetry: typeof waitForRetry } | undefined> {
  try {
    return await import('./retry.ts')
  } catch {
    return undefined
  }
}

function embeddingsUnsupported(provider: string): GatewayError {
  return new GatewayError('internal', `The provider "${provider}" does not support embeddings.`)
}

function noProvider(): GatewayError {
  return new GatewayError('internal', 'The request has no candidate provider.')
}

function circuitOf({ provider, model }: Route): string {
  return `${provider.name}/${model.id}`
}

function circuitOpenError(provider: string, waitMs: number): GatewayError {
  const message = `The provider "${provider}" failed repeatedly and is paused. Retry after the delay in Retry-After.`
  return new GatewayError('overloaded', message, { retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)) })
}

/** A provider call. The AbortSignal is created only when a provider reads it. */
class OutgoingCall<P extends Prompt | undefined> {
  readonly prompt: P
  readonly model: Model
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  readonly headers: ProviderCall['headers']
  readonly cancellation: Cancellation
  readonly onAccepted: () => void

  constructor({ options, call, candidate, record }: UpstreamAttempt, prompt: P) {
    const { runtime, timeouts } = options
    const { firstByte, idle, connect, total } = timeouts
    this.prompt = prompt
    this.model = candidate.model
    this.runtime = runtime
    this.timeouts = { firstByte, idle, connect, total: Math.max(1, call.startedAt + total - runtime.now()) }
    this.headers = call.headers
    this.cancellation = call.cancellation
    this.onAccepted = () => {
      record.isBillable = true
    }
  }

  get signal(): AbortSignal {
    return this.cancellation.signal
  }
}
