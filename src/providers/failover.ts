import type { Completion, Step } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import type { Embedded, EmbeddingRequest, Provider, ProviderCall, Runtime, Sent, Timeouts } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { createCircuits, type Circuits, type CircuitState } from './circuits.ts'
import { MAX_HOLD_MS, untilContent } from './first-content.ts'

/** One place that can answer a call. */
export interface Candidate {
  readonly provider: Provider
  readonly model: Model
}

export interface FailoverCall extends Omit<ProviderCall, 'model' | 'prompt' | 'runtime' | 'timeouts'> {
  /** The prompt for one candidate: providers differ in what must be said. */
  readonly promptFor: (candidate: Candidate) => Prompt
}

/** A call without a prompt: the same request for every candidate. */
export interface FailoverEmbedding extends Pick<ProviderCall, 'headers' | 'signal'> {
  readonly request: EmbeddingRequest
}

export interface FailoverAnswer<answer> extends Sent<answer> {
  /** Who answered. */
  readonly route: Candidate
}

export interface FailoverOptions {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** How often one candidate is asked at the most. @default 3 */
  readonly tries?: number
  readonly circuits?: Circuits
}

export interface Failover {
  complete(candidates: readonly Candidate[], call: FailoverCall): Promise<FailoverAnswer<Completion>>
  /**
   * Resolves when an upstream has answered 200 and its stream says something, at the latest 5 seconds after the call:
   * until then another candidate can still take over.
   */
  stream(candidates: readonly Candidate[], call: FailoverCall): Promise<FailoverAnswer<AsyncIterable<Step>>>
  /** Candidates that cannot embed fail and are passed over. */
  embed(candidates: readonly Candidate[], call: FailoverEmbedding): Promise<FailoverAnswer<Embedded>>
  /** The providers whose circuit is not closed. */
  circuits(): Readonly<Record<string, CircuitState>>
}

const TRIES = 3
const FIRST_WAIT_MS = 500
const LONGEST_BACKOFF_MS = 8000
/** A longer wait than this is the caller's to decide, who is told how long. */
const LONGEST_TOLD_WAIT_MS = 20_000

/**
 * Asks candidates in their order until one answers. A candidate that fails by its own fault is asked again after a
 * random wait that doubles (full jitter), as long as nothing of the answer has come and the deadline allows; then the
 * next one is. A told waiting time is kept where nobody else can answer. What an upstream blames on the request itself
 * is the end: nobody else is asked. When all fail, the first failure is thrown.
 */
export function createFailover(options: FailoverOptions): Failover {
  const { runtime, timeouts, tries = TRIES, circuits = createCircuits() } = options
  const run: Run = { runtime, timeouts, tries, circuits }
  return {
    complete: (candidates, call) =>
      askInTurn(run, candidates, call, async (candidate) => {
        const sent = await candidate.provider.complete(callFor(run, candidate, call))
        circuits.succeeded(candidate.provider.name)
        return sent
      }),
    stream: (candidates, call) => {
      const passOnAt = runtime.now() + MAX_HOLD_MS
      return askInTurn(run, candidates, call, async (candidate) => {
        const { answer, ignored } = await candidate.provider.stream(callFor(run, candidate, call))
        const { name } = candidate.provider
        const end = {
          whole: () => circuits.succeeded(name),
          broken: (error: unknown) => tellCircuit(run, name, error, call),
          left: () => circuits.undecided(name),
        }
        const holdMs = Math.max(0, passOnAt - runtime.now())
        return { answer: await untilContent(answer, runtime, end, holdMs), ignored }
      })
    },
    embed: (candidates, call) =>
      askInTurn(run, candidates, call, async ({ provider, model }) => {
        if (provider.embed === undefined) throw new GatewayError('internal', `"${provider.name}" cannot embed.`)
        const answer = await provider.embed({ ...call, model, runtime, timeouts })
        circuits.succeeded(provider.name)
        return { answer, ignored: [] }
      }),
    circuits: () => circuits.states(runtime.now()),
  }
}

interface Run {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  readonly tries: number
  readonly circuits: Circuits
}

type Ask<answer> = (candidate: Candidate) => Promise<Sent<answer>>

async function askInTurn<answer>(
  run: Run,
  candidates: readonly Candidate[],
  call: Pick<ProviderCall, 'signal'>,
  ask: Ask<answer>,
): Promise<FailoverAnswer<answer>> {
  const startedAt = run.runtime.now()
  let firstFailure: unknown
  for (const [index, candidate] of candidates.entries()) {
    const isLast = index === candidates.length - 1
    try {
      const sent = await askOne(run, { candidate, call, isLast, startedAt }, ask)
      return { ...sent, route: candidate }
    } catch (error) {
      if (call.signal.aborted || isFinal(error)) throw error
      firstFailure ??= error
    }
  }
  throw firstFailure ?? new GatewayError('internal', 'There is no provider to ask.')
}

interface Turn {
  readonly candidate: Candidate
  readonly call: Pick<ProviderCall, 'signal'>
  readonly isLast: boolean
  readonly startedAt: number
}

/** Asks one candidate until it answers or it makes no sense to ask it again. */
async function askOne<answer>(run: Run, turn: Turn, ask: Ask<answer>): Promise<Sent<answer>> {
  const { candidate, call } = turn
  const { name } = candidate.provider
  for (let attempt = 1; ; attempt += 1) {
    if (!run.circuits.admits(name, run.runtime.now())) throw leftAlone(run, name)
    try {
      return await ask(candidate)
    } catch (error) {
      tellCircuit(run, name, error, call)
      const wait = attempt < run.tries && !call.signal.aborted ? waitBefore(run, turn, attempt, error) : undefined
      if (wait === undefined) throw error
      await pause(run.runtime, wait, call.signal)
    }
  }
}

/** How long to wait before the next try, in milliseconds; undefined when there shall be none. */
function waitBefore(run: Run, turn: Turn, attempt: number, error: unknown): number | undefined {
  if (!isWorthRetrying(error)) return undefined
  const { retryAfterSeconds } = error.details
  const told = retryAfterSeconds === undefined ? 0 : retryAfterSeconds * 1000
  if (told > 0 && (!turn.isLast || told > LONGEST_TOLD_WAIT_MS)) return undefined
  const backoff = run.runtime.random() * Math.min(LONGEST_BACKOFF_MS, FIRST_WAIT_MS * 2 ** (attempt - 1))
  const wait = Math.max(told, backoff)
  const spent = run.runtime.now() - turn.startedAt
  return spent + wait < run.timeouts.total ? wait : undefined
}

/** A time-out is not: the caller has waited long enough, and whoever comes next may be faster. */
function isWorthRetrying(error: unknown): error is GatewayError {
  if (!GatewayError.is(error) || error.details.advice?.shouldRetry === 'false') return false
  return error.kind === 'upstream' || error.kind === 'overloaded' || error.kind === 'upstream-rate-limited'
}

/** True for what another candidate would answer no better: the request itself is wrong. */
function isFinal(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-rejected'
}

/** Only the provider's own faults count. An upstream that refuses a request, or us, is alive. */
function tellCircuit(run: Run, name: string, error: unknown, call: Pick<ProviderCall, 'signal'>): void {
  const { circuits, runtime } = run
  if (call.signal.aborted || !GatewayError.is(error)) return circuits.undecided(name)
  const { kind, details } = error
  if (kind === 'upstream-rejected') return circuits.succeeded(name)
  const isRefusal = details.advice?.shouldRetry === 'false' && kind === 'upstream'
  const isFault = kind === 'upstream' || kind === 'upstream-timeout' || kind === 'overloaded'
  if (isFault && !isRefusal) circuits.failed(name, runtime.now())
  else circuits.undecided(name)
}

function leftAlone(run: Run, name: string): GatewayError {
  const seconds = Math.max(1, Math.ceil(run.circuits.waitMs(name, run.runtime.now()) / 1000))
  return new GatewayError('overloaded', `The provider "${name}" has failed repeatedly and is left alone for a while.`, {
    retryAfterSeconds: seconds,
  })
}

function callFor(run: Run, candidate: Candidate, call: FailoverCall): ProviderCall {
  const { promptFor, ...others } = call
  return {
    ...others,
    prompt: promptFor(candidate),
    model: candidate.model,
    runtime: run.runtime,
    timeouts: run.timeouts,
  }
}

function pause(runtime: Runtime, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      cancel()
      reject(signal.reason)
    }
    const cancel = runtime.after(ms, () => {
      signal.removeEventListener('abort', leave)
      resolve()
    })
    signal.addEventListener('abort', leave, { once: true })
  })
}
