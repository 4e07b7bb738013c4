import { LRUCache } from 'lru-cache'
import { add, type NanoUsd, ZERO } from '../core/money.ts'

/** A model of the family for summaries and search terms. */
export interface SmallModel {
  readonly name: string
  /** Returns the reply and the cost of the call. Rejects if the call fails. */
  ask(question: {
    readonly instruction: string
    readonly text: string
    readonly maxTokens: number
    readonly signal: AbortSignal
  }): Promise<{ readonly text: string; readonly spent: NanoUsd }>
  /** Returns the cost of a call with these numbers of tokens; zero while the model is paused. */
  price(promptTokens: number, outputTokens: number): NanoUsd
  /** Reports whether a reply was usable. Failed calls are counted without a report. @default ignored */
  report?(isUsable: boolean): void
  /** Returns true if calls are refused after failures in this conversation. @default never */
  isPaused?(): boolean
}

/** Returns the author of summaries: the name of the small model, or `extractive` when none is available. */
export function controllerOf(small: SmallModel | undefined): string {
  return small === undefined || small.isPaused?.() === true ? 'extractive' : small.name
}

export interface FailurePauses {
  isPaused(conversation: string): boolean
  report(conversation: string, isUsable: boolean): void
}

const MAX_FAILURES = 2
const PAUSE_MS = 5 * 60 * 1000
/** Maximum number of conversations whose failures are counted. */
const MAX_CONVERSATIONS = 10_000

/**
 * Pauses a model in a conversation for five minutes after two consecutive failures, so that the conversation does not
 * wait for a failing call on each turn. After a pause, one failure is sufficient.
 */
export function createFailurePauses(now: () => number): FailurePauses {
  const failing = new LRUCache<string, { readonly count: number; readonly at: number }>({ max: MAX_CONVERSATIONS })
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

/** Returns a small model that is paused in the conversation. A call that the caller aborts is not a failure. */
export function withPauses(
  small: SmallModel,
  {
    pauses,
    conversation,
    signal,
  }: { readonly pauses: FailurePauses; readonly conversation: string; readonly signal: AbortSignal },
): SmallModel {
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

/** Returns a small model that adds up the cost of its calls, because a tier that fails does not report its cost. */
export function withSpending(small: SmallModel | undefined): {
  readonly small: SmallModel | undefined
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
