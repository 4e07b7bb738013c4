import { NO_USAGE, type AnswerSource, type Completion, type StreamChunk } from '../core/answer.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import type {
  Embedded,
  EmbeddingRequest,
  ProviderCall,
  ProviderState,
  ProviderStates,
  Runtime,
  Sent,
  Timeouts,
} from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { AnswerTranslator } from '../upstream/answer-translator.ts'
import { isSource, MAX_HOLD_MS, createChunkSource, UpstreamStream } from '../upstream/upstream-stream.ts'
import { createCircuitBreaker, type CircuitPass, type CircuitReport } from './circuit-breaker.ts'
import {
  msLeft,
  reportFailure,
  throwIfFinal,
  waitForRetry,
  type Candidate,
  type FailoverOptions,
  type FailoverRequest,
  type UpstreamAttempt,
} from './retry.ts'

export interface FailoverCall extends FailoverRequest {
  /** Returns the prompt for a candidate, because providers require different fields. */
  readonly promptFor: (candidate: Candidate) => Prompt
}

export interface FailoverStreamCall extends FailoverCall {
  /** Returns the translator of a streamed answer. Called once for each provider call. */
  readonly translatorFor: (candidate: Candidate, source: AnswerSource) => AnswerTranslator
}

export interface FailoverEmbedding extends FailoverRequest {
  readonly request: EmbeddingRequest
}

export interface FailoverAnswer<T> extends Sent<T> {
  readonly route: Candidate
}

export interface Failover {
  complete(candidates: readonly Candidate[], call: FailoverCall): Promise<FailoverAnswer<Completion>>
  /**
   * Resolves when an upstream has responded with status 200 and either its stream has content or 5 seconds have passed
   * since this call. Until then, another candidate can replace the upstream.
   */
  stream(candidates: readonly Candidate[], call: FailoverStreamCall): Promise<FailoverAnswer<UpstreamStream>>
  /** Rejects for candidates that cannot embed. */
  embed(candidates: readonly Candidate[], call: FailoverEmbedding): Promise<FailoverAnswer<Embedded>>
  /** Returns the circuits by `<provider>/<model_id>` that had requests recently or are not closed. */
  circuits(): Readonly<Record<string, CircuitReport>>
}

const DEFAULT_TRIES = 3

/**
 * Calls candidates in order until one answers. A candidate that fails before any part of its answer arrives is retried
 * after a random delay. Then the next candidate is called. `timeouts.total` limits the time of the request across all
 * candidates. A rejection of the request itself is not retried. If every candidate fails, the first failure is thrown.
 */
export function createFailover(given: FailoverOptions): Failover {
  const options = { tries: DEFAULT_TRIES, breaker: createCircuitBreaker(), ...given }
  const { runtime, breaker } = options
  return {
    complete: (candidates, call) =>
      callInOrder(options, candidates, call, (attempt) => {
        const outgoing = new OutgoingCall(attempt, call.promptFor(attempt.candidate))
        return attempt.candidate.provider.complete(outgoing).then((sent) => {
          attempt.paid.answered(sent.answer)
          attempt.pass.succeeded(runtime.now())
          return sent
        })
      }),
    stream: (candidates, call) => {
      const forwardAt = runtime.now() + MAX_HOLD_MS
      return callInOrder(options, candidates, call, async (attempt) => {
        const outgoing = new OutgoingCall(attempt, call.promptFor(attempt.candidate))
        const { answer, ignored } = await attempt.candidate.provider.stream(outgoing)
        const holdMs = Math.max(0, forwardAt - runtime.now())
        return { answer: await openStream(attempt, call, { answer, holdMs }), ignored }
      })
    },
    embed: (candidates, call) =>
      callInOrder(options, candidates, call, async (attempt) => {
        const { provider } = attempt.candidate
        if (provider.embed === undefined) throw new GatewayError('internal', `"${provider.name}" cannot embed.`)
        const { prompt: _prompt, ...shared } = new OutgoingCall(attempt, undefined)
        const { cancellation } = call
        const answer = await provider.embed({ ...shared, signal: cancellation.signal, request: call.request })
        attempt.paid.answered({ usage: { ...NO_USAGE, inputTokens: answer.inputTokens ?? 0 } })
        attempt.pass.succeeded(runtime.now())
        return { answer, ignored: [] }
      }),
    circuits: () => breaker.reports(runtime.now()),
  }
}

type Options = Required<FailoverOptions>
type CallUpstream<T> = (attempt: UpstreamAttempt) => Promise<Sent<T>>

async function callInOrder<T>(
  options: Options,
  candidates: readonly Candidate[],
  call: FailoverRequest,
  callUpstream: CallUpstream<T>,
): Promise<FailoverAnswer<T>> {
  let firstFailure: unknown
  for (let index = 0; index < candidates.length; index++) {
    try {
      return await callCandidate(options, candidates, index, call, callUpstream)
    } catch (error) {
      throwIfFinal(error, call)
      firstFailure ??= error
      if (msLeft(options, call) <= 0) break
    }
  }
  throw firstFailure ?? noProvider()
}

async function callCandidate<T>(
  options: Options,
  candidates: readonly Candidate[],
  index: number,
  call: FailoverRequest,
  callUpstream: CallUpstream<T>,
): Promise<FailoverAnswer<T>> {
  const candidate = candidates[index]
  if (candidate === undefined) throw noProvider()
  const circuit = circuitOf(candidate)
  const others = candidates.slice(index + 1)
  const hasAlternative = others.some((other) => !options.breaker.isOpen(circuitOf(other), call.keyId))
  const pass = admit(options, call.keyId, { circuit, hasAlternative, provider: candidate.provider.name })
  const [isFirstCandidate, isLastCandidate] = [index === 0, index === candidates.length - 1]
  for (let number = 1; ; number += 1) {
    const paid = call.attempts.begin(candidate)
    const attempt = { options, call, candidate, circuit, isFirstCandidate, isLastCandidate, pass, number, paid }
    try {
      const { answer, ignored } = await callUpstream(attempt)
      return { answer, ignored, route: candidate }
    } catch (error) {
      await waitForRetry(attempt, error)
    }
  }
}

function noProvider(): GatewayError {
  return new GatewayError('internal', 'The request has no candidate provider.')
}

function circuitOf({ provider, model }: Candidate): string {
  return `${provider.name}/${model.id}`
}

/** Throws `overloaded` if the circuit is open. */
function admit(
  { breaker, runtime }: Options,
  keyId: string,
  { circuit, hasAlternative, provider }: Record<'circuit' | 'provider', string> & { readonly hasAlternative: boolean },
): CircuitPass {
  const now = runtime.now()
  const pass = breaker.admit({ circuit, keyId, now, hasAlternative })
  if (pass !== undefined) return pass
  throw new GatewayError(
    'overloaded',
    `The provider "${provider}" failed repeatedly and is paused. Retry after the delay in Retry-After.`,
    {
      retryAfterSeconds: Math.max(1, Math.ceil(breaker.waitMs(circuit, keyId, now) / 1000)),
    },
  )
}

/** Resolves when the stream has content. */
async function openStream(
  attempt: UpstreamAttempt,
  call: FailoverStreamCall,
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

/** A provider call. The AbortSignal is created only when a provider reads it. */
class OutgoingCall<P extends Prompt | undefined> {
  readonly prompt: P
  readonly model: Model
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  readonly headers: ProviderCall['headers']
  readonly cancellation: Cancellation
  readonly onAccepted: () => void

  constructor({ options, call, candidate, paid }: UpstreamAttempt, prompt: P) {
    const { runtime, timeouts } = options
    const { firstByte, idle, connect, total } = timeouts
    this.prompt = prompt
    this.model = candidate.model
    this.runtime = runtime
    this.timeouts = { firstByte, idle, connect, total: Math.max(1, call.startedAt + total - runtime.now()) }
    this.headers = call.headers
    this.cancellation = call.cancellation
    this.onAccepted = () => {
      paid.isPaid = true
    }
  }

  get signal(): AbortSignal {
    return this.cancellation.signal
  }
}

/** Returns the state of each provider, based on the reports of its circuits. */
export function providerStates(
  providers: readonly { readonly name: string }[],
  circuits: Readonly<Record<string, CircuitReport>>,
): ProviderStates {
  const reports = Object.entries(circuits)
  return Object.fromEntries(
    providers.map(({ name }) => {
      const own = reports.filter(([circuit]) => circuit.startsWith(`${name}/`)).map(([, report]) => report)
      return [name, stateOf(own)]
    }),
  )
}

/** Returns the state of a provider. A circuit that is open for only one key does not affect the state. */
function stateOf(reports: readonly CircuitReport[]): ProviderState {
  if (reports.every(({ state }) => state === 'closed')) return 'healthy'
  return reports.every(({ state, isForAllKeys }) => state === 'open' && isForAllKeys) ? 'away' : 'degraded'
}
