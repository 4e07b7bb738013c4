import { NO_USAGE, type Completion, type Step, type AnswerSource } from '../core/answer.ts'
import type { Cancellation } from '../core/cancellation.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import type { Embedded, EmbeddingRequest, Provider, ProviderCall, Runtime, Sent, Timeouts } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { createCircuitBreaker, type CircuitBreaker, type CircuitPass, type CircuitReport } from './circuit-breaker.ts'
import type { AnswerTranslator } from '../upstream/answer-translator.ts'
import type { Attempt as Paid, Attempts } from '../upstream/attempts.ts'
import { pause, waitBeforeRetry } from './retry.ts'
import { isSource, MAX_HOLD_MS, sourceOfSteps, UpstreamStream, type StreamEnd } from '../upstream/upstream-stream.ts'

/** One place that can answer a call. */
export interface Candidate {
  readonly provider: Provider
  readonly model: Model
}

/** What belongs to the request rather than to one of its upstream calls. */
export interface FailoverRequest extends Pick<ProviderCall, 'headers'> {
  readonly cancellation: Cancellation
  readonly keyId: string
  /** When `timeouts.total` began, in milliseconds since 1970. */
  readonly startedAt: number
  /** Counts every call, for the bill. */
  readonly attempts: Attempts
}

export interface FailoverCall extends FailoverRequest {
  /** The prompt for one candidate: providers differ in what must be stated. */
  readonly promptFor: (candidate: Candidate) => Prompt
}

export interface FailoverStreamCall extends FailoverCall {
  /** A new translator for each try. */
  readonly translatorFor: (candidate: Candidate, source: AnswerSource) => AnswerTranslator
}

/** A call without a prompt: the same request for every candidate. */
export interface FailoverEmbedding extends FailoverRequest {
  readonly request: EmbeddingRequest
}

export interface FailoverAnswer<answer> extends Sent<answer> {
  /** Who answered. */
  readonly route: Candidate
}

export interface FailoverOptions {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** Maximum number of calls to one candidate. @default 3 */
  readonly tries?: number
  readonly breaker?: CircuitBreaker
}

export interface Failover {
  complete(candidates: readonly Candidate[], call: FailoverCall): Promise<FailoverAnswer<Completion>>
  /**
   * Resolves when an upstream has answered 200 and its stream says something, at the latest 5 seconds after the call:
   * until then another candidate can still take over.
   */
  stream(candidates: readonly Candidate[], call: FailoverStreamCall): Promise<FailoverAnswer<UpstreamStream>>
  /** Skips candidates that cannot embed. */
  embed(candidates: readonly Candidate[], call: FailoverEmbedding): Promise<FailoverAnswer<Embedded>>
  /** By `<provider>/<model_id>`: the circuits that had requests lately or are not closed. */
  circuits(): Readonly<Record<string, CircuitReport>>
}

const TRIES = 3
/**
 * Asks candidates in their order until one answers. A candidate that fails is asked again after a random wait, as long
 * as nothing of the answer has arrived; then the next one is asked. `timeouts.total` bounds the request over all tries
 * and candidates. A refusal of the request itself is final. When every candidate fails, the first failure is thrown.
 */
export function createFailover(options: FailoverOptions): Failover {
  const { runtime, timeouts, tries = TRIES, breaker = createCircuitBreaker() } = options
  const run: Run = { runtime, timeouts, tries, breaker }
  return {
    complete: (candidates, call) =>
      askInTurn(run, candidates, call, (attempt) =>
        attempt.candidate.provider.complete(callFor(attempt, call)).then((sent) => {
          attempt.paid.answered(sent.answer)
          attempt.pass.succeeded(runtime.now())
          return sent
        }),
      ),
    stream: (candidates, call) => {
      const passOnAt = runtime.now() + MAX_HOLD_MS
      return askInTurn(run, candidates, call, async (attempt) => {
        const { answer, ignored } = await attempt.candidate.provider.stream(callFor(attempt, call))
        const holdMs = Math.max(0, passOnAt - runtime.now())
        return { answer: await openStream(attempt, call, { answer, holdMs }), ignored }
      })
    },
    embed: (candidates, call) =>
      askInTurn(run, candidates, call, async (attempt) => {
        const { provider } = attempt.candidate
        if (provider.embed === undefined) throw new GatewayError('internal', `"${provider.name}" cannot embed.`)
        const answer = await provider.embed({ ...sharedBy(attempt, call), request: call.request })
        attempt.paid.answered({ usage: { ...NO_USAGE, inputTokens: answer.inputTokens ?? 0 } })
        attempt.pass.succeeded(runtime.now())
        return { answer, ignored: [] }
      }),
    circuits: () => breaker.reports(runtime.now()),
  }
}

interface Run {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  readonly tries: number
  readonly breaker: CircuitBreaker
}

interface Attempt {
  readonly run: Run
  readonly call: FailoverRequest
  readonly candidate: Candidate
  readonly isFirst: boolean
  readonly isLast: boolean
  readonly pass: CircuitPass
  /** 1 for the first. */
  readonly number: number
  readonly paid: Paid
}

type Ask<answer> = (attempt: Attempt) => Promise<Sent<answer>>

async function askInTurn<answer>(
  run: Run,
  candidates: readonly Candidate[],
  call: FailoverRequest,
  ask: Ask<answer>,
): Promise<FailoverAnswer<answer>> {
  let firstFailure: unknown
  for (let index = 0; index < candidates.length; index++) {
    try {
      return await askOne({ run, candidates, call, index }, ask)
    } catch (error) {
      if (call.cancellation.isCancelled || isFinal(error)) throw error
      firstFailure ??= error
      if (msLeft(run, call) <= 0) break
    }
  }
  throw firstFailure ?? new GatewayError('internal', 'There is no provider to ask.')
}

/** Whose turn it is. */
interface Turn {
  readonly run: Run
  readonly candidates: readonly Candidate[]
  readonly call: FailoverRequest
  readonly index: number
}

/** Asks one candidate until it answers or another try makes no sense. */
async function askOne<answer>(turn: Turn, ask: Ask<answer>): Promise<FailoverAnswer<answer>> {
  const { run, candidates, call, index } = turn
  const candidate = candidateAt(candidates, index)
  const pass = admit(turn)
  const [isFirst, isLast] = [index === 0, index === candidates.length - 1]
  for (let number = 1; ; number += 1) {
    const paid = call.attempts.begin(candidate)
    const attempt: Attempt = { run, call, candidate, isFirst, isLast, pass, number, paid }
    try {
      const { answer, ignored } = await ask(attempt)
      return { answer, ignored, route: candidate }
    } catch (error) {
      paid.failed(error)
      const wait = waitAfter(attempt, error)
      if (wait === undefined) {
        report(attempt, error)
        throw error
      }
      await pause(run.runtime, wait, call.cancellation).catch((reason: unknown) => {
        pass.undecided()
        throw reason
      })
    }
  }
}

function candidateAt(candidates: readonly Candidate[], index: number): Candidate {
  const candidate = candidates[index]
  if (candidate === undefined) throw new GatewayError('internal', 'There is no provider to ask.')
  return candidate
}

function waitAfter({ run, call, candidate, number, isLast }: Attempt, error: unknown): number | undefined {
  if (number >= run.tries || call.cancellation.isCancelled) return undefined
  // A probe is one call, and a circuit that opened meanwhile ends the tries of requests under way.
  if (run.breaker.isOpen(circuitOf(candidate), call.keyId)) return undefined
  const wait = waitBeforeRetry({ attempt: number, isLast, error }, run.runtime.random)
  return wait !== undefined && wait < msLeft(run, call) ? wait : undefined
}

/** Resolves with the first content of the stream. */
async function openStream(
  attempt: Attempt,
  call: FailoverStreamCall,
  { answer, holdMs }: { readonly answer: AsyncIterable<Step> | AnswerSource; readonly holdMs: number },
): Promise<UpstreamStream> {
  const { run, candidate, pass, paid } = attempt
  const { runtime } = run
  const source = isSource(answer) ? answer : sourceOfSteps(answer, candidate.provider.name)
  const stream = new UpstreamStream(source, call.translatorFor(candidate, source))
  paid.answered(stream.translator)
  // Providers of the user's own have no deadline of their own.
  const late = (): void => stream.breakOff(tooSlow(candidate, run.timeouts.total))
  const cancel = isSource(answer) ? noop : runtime.after(Math.max(1, msLeft(run, call)), late)
  const end = (count: () => void): void => {
    cancel()
    count()
  }
  const opened = stream.open(runtime, holdMs)
  // Calls back at once when the caller has left already.
  const unsubscribe = call.cancellation.onCancel(() => stream.abort(call.cancellation.reason))
  try {
    await opened
  } catch (error) {
    cancel()
    throw error
  } finally {
    unsubscribe()
  }
  const counted: StreamEnd = {
    whole: () => end(() => pass.succeeded(runtime.now())),
    broken: (error) => end(() => report(attempt, error)),
    left: () => end(() => pass.undecided()),
  }
  stream.countEnd(counted)
  return stream
}

function tooSlow({ provider }: Candidate, totalMs: number): GatewayError {
  const message = `The provider "${provider.name}" did not finish its answer within ${totalMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isCallerSide: true })
}

function noop(): void {}

/** True for a refusal of the request itself: another candidate would refuse it as well. */
function isFinal(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-rejected'
}

const FAULTS: ReadonlySet<string> = new Set(['upstream', 'upstream-timeout', 'overloaded'])

/** Reports a failure to the circuit. Only failures that the upstream caused count. */
function report({ run, call, pass, isFirst, number }: Attempt, error: unknown): void {
  if (call.cancellation.isCancelled || !GatewayError.is(error)) return pass.undecided()
  const isFault = FAULTS.has(error.kind) && error.details.isCallerSide !== true
  // A later call gets what the earlier ones left of `timeouts.total`: too little time proves nothing.
  const hadWholeTime = isFirst && number === 1
  const isShortOfTime = error.kind === 'upstream-timeout' && !hadWholeTime && msLeft(run, call) <= 0
  if (isFault && !isShortOfTime) pass.failed(run.runtime.now())
  else pass.undecided()
}

/** Throws `overloaded` when the candidate's circuit is open. */
function admit({ run, candidates, call, index }: Turn): CircuitPass {
  const { breaker, runtime } = run
  const { keyId } = call
  const candidate = candidateAt(candidates, index)
  const circuit = circuitOf(candidate)
  const now = runtime.now()
  const hasAlternative = candidates.some((other, at) => at > index && !breaker.isOpen(circuitOf(other), keyId))
  const pass = breaker.admit({ circuit, keyId, now, hasAlternative })
  if (pass !== undefined) return pass
  const { name } = candidate.provider
  throw new GatewayError('overloaded', `The provider "${name}" failed repeatedly. Retry after the time given.`, {
    retryAfterSeconds: Math.max(1, Math.ceil(breaker.waitMs(circuit, keyId, now) / 1000)),
  })
}

function circuitOf({ provider, model }: Candidate): string {
  return `${provider.name}/${model.id}`
}

/** What is left of `timeouts.total`, in milliseconds. */
function msLeft({ runtime, timeouts }: Run, { startedAt }: FailoverRequest): number {
  return startedAt + timeouts.total - runtime.now()
}

function callFor(attempt: Attempt, call: FailoverCall): ProviderCall {
  return new OutgoingCall(attempt, call, call.promptFor(attempt.candidate))
}

function sharedBy(attempt: Attempt, call: FailoverRequest): Omit<ProviderCall, 'prompt'> {
  const { runtime, model, timeouts, headers, cancellation, onAccepted } = new OutgoingCall(attempt, call, undefined)
  return { runtime, model, timeouts, headers, cancellation, onAccepted, signal: cancellation.signal }
}

/** A call whose signal is created when a provider asks for it. */
class OutgoingCall<prompt extends Prompt | undefined> {
  readonly prompt: prompt
  readonly model: Model
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  readonly headers: ProviderCall['headers']
  readonly cancellation: Cancellation
  readonly onAccepted: () => void

  constructor({ run, candidate, paid }: Attempt, call: FailoverRequest, prompt: prompt) {
    this.prompt = prompt
    this.model = candidate.model
    this.runtime = run.runtime
    const { firstByte, idle, connect } = run.timeouts
    this.timeouts = { firstByte, idle, connect, total: Math.max(1, msLeft(run, call)) }
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
