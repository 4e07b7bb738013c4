/**
 * The small model of a route, which the cache's verifier and the savings call. Part of the kernel because a dry run is: it
 * must not call one, whichever plugin asks.
 */
import type { Meter, Route, SmallModel } from '../core/ports.ts'
import type { Authenticated } from './exchange.ts'
import type { Services } from './services.ts'

/** Returns the small model for a route. It is not called for a dry run. */
export function smallModelOf(
  { isDryRun, caller }: Pick<Authenticated, 'isDryRun' | 'caller'>,
  route: Route,
  { smallModel, meter }: Pick<Services, 'smallModel' | 'meter'>,
): SmallModel | undefined {
  const small = smallModel(route, caller)
  return isDryRun ? simulateSmallModel(small, meter) : small
}

/** Typical length of a small model's response, as a fraction of its input. */
const RESPONSE_TO_INPUT_RATIO = 1 / 3
const CHARACTERS_PER_TOKEN = 4

/** A small model that is not called. Its reply is the beginning of the text, at the price of a call of that length. */
export function simulateSmallModel(
  small: SmallModel | undefined,
  { tokenizer: { estimate } }: Pick<Meter, 'tokenizer'>,
): SmallModel | undefined {
  if (small === undefined) return undefined
  return {
    name: small.name,
    price: small.price,
    ask: async ({ instruction, text, maxTokens }) => {
      const response = text.slice(0, Math.min(text.length * RESPONSE_TO_INPUT_RATIO, maxTokens * CHARACTERS_PER_TOKEN))
      return { text: response, spent: small.price(estimate(instruction) + estimate(text), estimate(response)) }
    },
  }
}
