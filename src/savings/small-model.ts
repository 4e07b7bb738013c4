import { LRUCache } from 'lru-cache'
import { add, type NanoUsd, ZERO } from '../core/money.ts'

/** The small model of the family, without HTTP, retries and formats. */
export interface SmallModel {
  readonly name: string
  /** Asks the model. Returns the reply and the cost of the call. Rejects when the call fails. */
  ask(question: {
    readonly instruction: string
    readonly text: string
    readonly maxTokens: number
    readonly signal: AbortSignal
  }): Promise<{ readonly text: string; readonly spent: NanoUsd }>
  /** Returns the cost of a call of this size; zero while the model is paused. */
  price(promptTokens: number, outputTokens: number): NanoUsd
  /** Reports whether a reply could be used. Failed calls count without it. @default not observed */
  report?(isUsable: boolean): void
  /**
   * Returns true for five minutes after two failures in a row in this conversation. Calls are then refused. @default
   * never
   */
  isPaused?(): boolean
}

/** Returns the author of summaries: the name of the small model, or `extractive` when none is available. */
export function controllerOf(small: SmallModel | undefined): string {
  return small === undefined || small.isPaused?.() === true ? 'extractive' : small.name
}

/** Pauses failing small models, so that a conversation does not wait for and pay a failing call on every turn. */
export interface SmallModelPauses {
  /** Returns the model for one request. Its calls are refused while it is paused in this conversation. */
  watch(small: SmallModel, request: WatchedRequest): SmallModel
}

export interface WatchedRequest {
  /** Names the conversation and its owner. */
  readonly conversation: string
  /** A call that ends because the caller left does not count as a failure. */
  readonly signal: AbortSignal
}

/** Failures in a row after which the model is paused. */
const MAX_FAILURES = 2
const PAUSE_MS = 5 * 60 * 1000
/** Number of conversations whose failures are remembered. A forgotten one costs two more failing calls. */
const MAX_CONVERSATIONS = 10_000

interface Failures {
  readonly count: number
  /** Milliseconds since 1970. */
  readonly at: number
}

/** Pauses a model in a conversation for five minutes after two failures in a row; after a pause, one failure is enough. */
export interface FailurePauses {
  isPaused(conversation: string): boolean
  report(conversation: string, isUsable: boolean): void
}

export function createFailurePauses(now: () => number): FailurePauses {
  const failing = new LRUCache<string, Failures>({ max: MAX_CONVERSATIONS })
  return {
    isPaused: (conversation) => {
      const failures = failing.get(conversation)
      return failures !== undefined && failures.count >= MAX_FAILURES && now() - failures.at < PAUSE_MS
    },
    report: (conversation, isUsable) => {
      if (isUsable) failing.delete(conversation)
      else failing.set(conversation, { count: (failing.get(conversation)?.count ?? 0) + 1, at: now() })
    },
  }
}

export function createSmallModelPauses(now: () => number): SmallModelPauses {
  const pauses = createFailurePauses(now)

  const watch = (small: SmallModel, { conversation, signal }: WatchedRequest): SmallModel => {
    const isPaused = (): boolean => pauses.isPaused(conversation)
    const report = (isUsable: boolean): void => pauses.report(conversation, isUsable)
    const ask: SmallModel['ask'] = async (question) => {
      if (isPaused()) throw new Error('The small model failed twice in this conversation and is paused.')
      try {
        return await small.ask(question)
      } catch (error) {
        if (!signal.aborted) report(false)
        throw error
      }
    }
    const price: SmallModel['price'] = (input, output) => (isPaused() ? ZERO : small.price(input, output))
    return { name: small.name, ask, price, report, isPaused }
  }
  return { watch }
}

/** The small model, and what its calls cost: a tier that fails does not report what it has spent. */
export function createPurse(small: SmallModel | undefined): {
  readonly small: typeof small
  readonly spent: () => NanoUsd
} {
  let spent: NanoUsd = ZERO
  if (small === undefined) return { small, spent: () => spent }
  const ask: SmallModel['ask'] = async (question) => {
    const reply = await small.ask(question)
    spent = add(spent, reply.spent)
    return reply
  }
  return { small: { ...small, ask }, spent: () => spent }
}
