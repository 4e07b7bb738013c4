import { NO_USAGE } from '../core/money.ts'
import { type Cancellation, lazy } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { ProviderCall, Runtime, ProviderResponse, Timeouts, Route, Model, UpstreamCaller } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import {
  checkPayer,
  isResponseSource,
  type Upstream,
  type UpstreamResponse,
  type UpstreamRequest,
} from '../upstream/attempts.ts'
import { type CircuitReport, createCircuitBreaker } from './circuit-breaker.ts'
import { type FailoverOptions, type UpstreamAttempt, reportFailure, remainingMs } from './upstream-attempt.ts'

/** Time after the first call until which another candidate can replace a stream without content, in milliseconds. */
const MAX_HOLD_MS = 5000

export interface Failover extends Upstream {
  circuits(): Readonly<Record<string, CircuitReport>>
}

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
        accept: (attempt, response) => {
          attempt.record.recordResponse(response)
          attempt.permit.recordSuccess(runtime.now())
        },
      }),
    stream: (candidates, call, createStream) => {
      const forwardAt = runtime.now() + MAX_HOLD_MS
      return callInOrder(options, candidates, call, {
        send: async (attempt) => {
          const { openStream } = await loadOpenStream()
          const outgoing = new OutgoingCall(attempt, call.promptFor(attempt.candidate))
          const { response, ignored } = await attempt.candidate.provider.stream(outgoing)
          const stream = createStream(attempt.candidate, response)
          await openStream(attempt, stream, isResponseSource(response), Math.max(0, forwardAt - runtime.now()))
          return { response: stream, ignored }
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
          return { response: await provider.embed({ ...shared, signal, request: call.request }), ignored: [] }
        },
        accept: (attempt, { inputTokens }) => {
          attempt.record.recordResponse({ usage: { ...NO_USAGE, inputTokens: inputTokens ?? 0 } })
          attempt.permit.recordSuccess(runtime.now())
        },
      }),
    circuits: () => withoutCustomers(breaker.reports(runtime.now())),
  }
}

const loadOpenStream = lazy(() => import('./open-stream.ts'))

interface ProviderMethod<T> {
  readonly send: (attempt: UpstreamAttempt) => Promise<ProviderResponse<T>>
  readonly accept?: (attempt: UpstreamAttempt, response: T) => void
}

/** Creates no promise of its own, because the first attempt answers nearly all requests. */
function callInOrder<T>(
  options: UpstreamAttempt['options'],
  candidates: readonly Route[],
  call: UpstreamRequest,
  method: ProviderMethod<T>,
  { index, firstFailure }: Progress = FIRST_CANDIDATE,
): Promise<UpstreamResponse<T>> {
  const callNext = async (error: unknown): Promise<UpstreamResponse<T>> => {
    const isFinal = GatewayError.is(error) && (error.kind === 'upstream-rejected' || error.details.isFinal === true)
    if (isFinal || call.cancellation.isCanceled) throw error
    const failure = firstFailure ?? error
    if (index + 1 >= candidates.length || remainingMs(options, call) <= 0) throw failure ?? noProvider()
    return callInOrder(options, candidates, call, method, { index: index + 1, firstFailure: failure })
  }
  let attempt: UpstreamAttempt
  try {
    attempt = beginFirstAttempt(options, candidates, index, call)
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

function beginFirstAttempt(
  options: UpstreamAttempt['options'],
  candidates: readonly Route[],
  index: number,
  call: UpstreamRequest,
): UpstreamAttempt {
  const candidate = candidates[index]
  if (candidate === undefined) throw noProvider()
  const { breaker, runtime } = options
  const { scope, caller } = call
  if (caller.payer === 'customer') checkPayer(candidate.provider, caller)
  const circuit = circuitOf(candidate, caller)
  const hasAlternative = candidates.slice(index + 1).some((other) => !breaker.isOpen(circuitOf(other, caller), scope))
  const now = runtime.now()
  const permit = breaker.admit({ circuit, scope, now, hasAlternative })
  if (permit === undefined) throw circuitOpenError(candidate.provider.name, breaker.waitMs(circuit, scope, now))
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

function callCandidate<T>(
  attempt: UpstreamAttempt,
  method: ProviderMethod<T>,
  callNext: (error: unknown) => Promise<UpstreamResponse<T>>,
): Promise<UpstreamResponse<T>> {
  let pendingResponse: Promise<ProviderResponse<T>>
  try {
    pendingResponse = Promise.resolve(method.send(attempt))
  } catch (error) {
    pendingResponse = Promise.reject(error)
  }
  return pendingResponse.then(
    (received) => {
      try {
        const { response, ignored } = received
        method.accept?.(attempt, response)
        return { response, ignored, route: attempt.candidate }
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
  callNext: (error: unknown) => Promise<UpstreamResponse<T>>,
): Promise<UpstreamResponse<T>> {
  const { options, candidate, call, permit, number } = attempt
  attempt.record.recordFailure(error)
  // The module is needed only after a failure. Its file may be missing during a deployment. A canceled call is not
  // retried, so its settlement does not wait for the module.
  const retryModule = call.cancellation.isCanceled ? undefined : await import('./retry.ts').catch(() => undefined)
  let mayRetry = false
  try {
    mayRetry = (await retryModule?.waitForRetry(attempt, error, remainingMs(options, call))) === true
  } catch (reason) {
    permit.discard()
    return callNext(reason)
  }
  if (!mayRetry) {
    reportFailure(attempt, error)
    return callNext(error)
  }
  return callCandidate({ ...attempt, number: number + 1, record: call.attempts.begin(candidate) }, method, callNext)
}

function noProvider(): GatewayError {
  return new GatewayError('internal', 'The request has no candidate provider.')
}

const CUSTOMER_MARK = ' ~'

/** A vendor key of a customer has its own circuits, because the vendor may refuse or limit only that key. */
function circuitOf({ provider, model }: Route, { payer, customer }: UpstreamCaller): string {
  return payer === 'operator'
    ? `${provider.name}/${model.id}`
    : `${provider.name}/${model.id}${CUSTOMER_MARK}${customer}`
}

/** The key of one customer says nothing about the provider. */
function withoutCustomers(reports: Readonly<Record<string, CircuitReport>>): Readonly<Record<string, CircuitReport>> {
  return Object.fromEntries(Object.entries(reports).filter(([name]) => !name.includes(CUSTOMER_MARK)))
}

function circuitOpenError(provider: string, waitMs: number): GatewayError {
  const message = `The provider "${provider}" failed repeatedly and is paused. Retry after the delay in Retry-After.`
  return new GatewayError('overloaded', message, { retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)) })
}

/** A class, so that the AbortSignal is created only when a provider reads it. */
class OutgoingCall<P extends Prompt | undefined> {
  readonly prompt: P
  readonly model: Model
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  readonly headers: ProviderCall['headers']
  readonly cancellation: Cancellation
  readonly caller: UpstreamCaller
  readonly onAccepted: () => void
  readonly onIgnored: (names: readonly string[]) => void

  constructor({ options, call, candidate, record }: UpstreamAttempt, prompt: P) {
    const { runtime, timeouts } = options
    const { firstByteMs: firstByte, idleMs: idle, connectMs: connect, totalMs: total } = timeouts
    this.prompt = prompt
    this.model = candidate.model
    this.runtime = runtime
    this.timeouts = {
      firstByteMs: firstByte,
      idleMs: idle,
      connectMs: connect,
      totalMs: Math.max(1, call.startedAt + total - runtime.now()),
    }
    this.headers = call.headers
    this.cancellation = call.cancellation
    this.caller = call.caller
    this.onAccepted = () => {
      record.isBillable = true
    }
    this.onIgnored = (names) => call.onIgnored?.(candidate, names)
  }

  get signal(): AbortSignal {
    return this.cancellation.signal
  }
}
