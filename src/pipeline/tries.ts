import { NO_USAGE, promptTokens, type Step, type Usage } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { add, costOf, ZERO, type NanoUsd } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'
import type { Route } from './route.ts'

/**
 * The upstream calls of one request, retries and fallbacks included. A call is paid from the moment the upstream
 * accepts it (status 200), and also when the gateway gives it up before its answer: a timeout, or a caller who left. A
 * call that the upstream refused or that did not reach it costs nothing.
 */
export interface Tries {
  /** The same routes. Every call to one of them is counted here. */
  watch(routes: readonly Route[]): readonly Route[]
  /** Cost of all paid calls. `sent` is the local count of the prompt, for calls whose usage the upstream did not report. */
  cost(sent: number): NanoUsd
  /** Cost of all paid calls but the last one, which is the answer. */
  costOfUnused(sent: number): NanoUsd
  /** The paid call that was ended before its answer, undefined when there is none. */
  last(): Try | undefined
}

export interface Try {
  readonly route: Route
  /** What the upstream reported until now. */
  readonly usage: Usage
}

interface Attempt extends Try {
  usage: Usage
  isPaid: boolean
  /** The caller had left before: the call was never sent. */
  readonly isTooLate: boolean
}

export function createTries(signal: AbortSignal): Tries {
  const attempts: Attempt[] = []

  function begin(route: Route): Attempt {
    const attempt = { route, usage: NO_USAGE, isPaid: false, isTooLate: signal.aborted }
    attempts.push(attempt)
    return attempt
  }

  async function outcome<answer>(attempt: Attempt, call: Promise<answer>): Promise<answer> {
    try {
      const answer = await call
      attempt.isPaid = true
      return answer
    } catch (error) {
      attempt.isPaid ||= !attempt.isTooLate && (signal.aborted || isTimeout(error))
      throw error
    }
  }

  const costOfAll = (some: readonly Attempt[], sent: number): NanoUsd =>
    some.reduce((sum, attempt) => (attempt.isPaid ? add(sum, costOfTry(attempt, sent)) : sum), ZERO)

  return {
    watch: (routes) => routes.map((route) => ({ ...route, provider: watchedProvider(route, begin, outcome) })),
    cost: (sent) => costOfAll(attempts, sent),
    costOfUnused: (sent) => costOfAll(attempts.slice(0, -1), sent),
    last: () => {
      const attempt = attempts.at(-1)
      return attempt?.isPaid === true ? attempt : undefined
    },
  }
}

function watchedProvider(
  { provider, model }: Route,
  begin: (route: Route) => Attempt,
  outcome: <answer>(attempt: Attempt, call: Promise<answer>) => Promise<answer>,
): Provider {
  const route = { provider, model }
  const accepting = (attempt: Attempt) => () => {
    attempt.isPaid = true
  }
  return {
    name: provider.name,
    dialect: provider.dialect,
    models: provider.models,
    model: (id) => provider.model(id),
    complete: async (call) => {
      const attempt = begin(route)
      const sent = await outcome(attempt, provider.complete({ ...call, onAccepted: accepting(attempt) }))
      attempt.usage = sent.answer.usage ?? NO_USAGE
      return sent
    },
    stream: async (call) => {
      const attempt = begin(route)
      const sent = await outcome(attempt, provider.stream({ ...call, onAccepted: accepting(attempt) }))
      return { ...sent, answer: noteUsage(sent.answer, attempt) }
    },
    ...(provider.embed !== undefined && {
      embed: async (call) => {
        const attempt = begin(route)
        const embedding = provider.embed?.({ ...call, onAccepted: accepting(attempt) }) ?? cannotEmbed(provider)
        const embedded = await outcome(attempt, embedding)
        attempt.usage = { ...NO_USAGE, inputTokens: embedded.inputTokens ?? 0 }
        return embedded
      },
    }),
  }
}

function cannotEmbed({ name }: Provider): Promise<never> {
  return Promise.reject(new GatewayError('internal', `"${name}" cannot embed.`))
}

/** The same steps. Not a generator, whose `return` would wait for the step that is awaited. */
function noteUsage(steps: AsyncIterable<Step>, attempt: Attempt): AsyncIterable<Step> {
  return {
    [Symbol.asyncIterator]: () => {
      const source = steps[Symbol.asyncIterator]()
      return {
        next: async () => {
          const result = await source.next()
          if (result.done === true) return result
          for (const event of result.value.events) {
            if (event.type === 'usage') attempt.usage = { ...attempt.usage, ...event.usage }
          }
          return result
        },
        return: async () => (await source.return?.()) ?? { done: true, value: undefined },
      }
    },
  }
}

function costOfTry({ route, usage }: Attempt, sent: number): NanoUsd {
  return costOf(withPrompt(usage, sent), route.model.price)
}

/** No prompt is empty: an upstream that reports no prompt tokens did not count them. */
export function withPrompt(usage: Usage, counted: number): Usage {
  return promptTokens(usage) > 0 ? usage : { ...usage, inputTokens: counted }
}

function isTimeout(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-timeout' && error.details.isUnsent !== true
}
