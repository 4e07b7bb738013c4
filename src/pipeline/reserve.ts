import { greatestAnswer } from '../governance/access.ts'
import { createQuote, type Candidate } from '../governance/quote.ts'
import type { Quote } from '../governance/reservation.ts'
import type { Route } from './route.ts'
import type { Claimed, Parts, Reserved, Understood } from './stages.ts'

/** Takes a place and the worst case's money, before anything is spent: 429 or 402. */
export async function reserve(claimed: Claimed, parts: Parts): Promise<Reserved> {
  const reservation = await parts.ledger.reserve(claimed.key, quote(claimed))
  return { ...claimed, reservation }
}

/**
 * The dearest of the routes decides: a fallback must not cost more than what was reserved.
 *
 * @param asksUpstream False for a quote that must not ask an upstream to count.
 */
export function quote(understood: Understood, asksUpstream: boolean = true): Quote {
  const { prompt, resolved, size, margin, key } = understood
  const candidateOf = (route: Route): Candidate => {
    const counter = size.counter(route)
    const isUsable = counter !== undefined && (asksUpstream || !counter.asksUpstream)
    return { model: route.model, promptTokens: size.reserved(route), ...(isUsable && counter) }
  }
  return createQuote({
    candidates: () => resolved.routes.map(candidateOf),
    promptTokens: () => size.bound,
    countPrompt: size.count,
    outputTokens: greatestAnswer(key, prompt, resolved.routes[0].model),
    choices: prompt.settings.choices ?? 1,
    margin,
  })
}
