import { NO_USAGE } from '../core/money.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { ProviderCall, Runtime, ProviderAnswer, Timeouts, Route, Model } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { type Upstream, type UpstreamAnswer, type UpstreamRequest, isAnswerSource } from '../upstream/attempts.ts'
import {
  remainingMs,
  openStream,
  reportFailure,
  throwIfFinal,
  type FailoverOptions,
  type UpstreamAttempt,
} from './attempt.ts'
import { createCircuitBreaker, type CircuitReport } from './circuit-breaker.ts'

/**
 * Maximum wait for the first content of a stream, in milliseconds. Until then, another candidate can replace the
 * stream.
 */
const MAX_HOLD_MS = 5000

export interface Failover extends Upstream {
  /** Returns the circuits by `<provider>/<model_id>` that had requests recently or are not closed. */
  circuits(): Readonly<Record<string, CircuitReport>>
}

/**
 * Calls candidates in order until one answers. If `retryDelayMs` allows it, a failure before the answer begins is
 * retried after a delay. Then the next candidate is called. `timeouts.total` limits the request across all candidates.
 * A rejection of the request itself ends the call. If every candidate fails, the call rejects with the first failure.
 * `embed` treats a candidate without embeddings as failed.
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
          if (provider.embed === undefined)
            throw new GatewayError('internal', `The provider "${provider.name}" does not support embeddings.`)
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
  options: UpstreamAttempt['options'],
  candidates: readonly Route[],
  call: UpstreamRequest,
  method: ProviderMethod<T>,
  { index, firstFailure }: Progress = FIRST_CANDIDATE,
): Promise<UpstreamAnswer<T>> {
  const callNext = async (error: unknown): Promise<UpstreamAnswer<T>> => {
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
  options: UpstreamAttempt['options'],
  candidates: readonly Route[],
  index: number,
  call: UpstreamRequest,
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

/** @param callNext Calls the next candidate after the final failure of this one. */
function callCandidate<T>(
  attempt: UpstreamAttempt,
  method: ProviderMethod<T>,
  callNext: (error: unknown) => Promise<UpstreamAnswer<T>>,
): Promise<UpstreamAnswer<T>> {
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
  callNext: (error: unknown) => Promise<UpstreamAnswer<T>>,
): Promise<UpstreamAnswer<T>> {
  const { candidate, call, number } = attempt
  attempt.record.recordFailure(error)
  // The module is needed only after a failure. Its file may be missing during a deployment.
  const retryModule = await import('./retry.ts').catch(() => undefined)
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
