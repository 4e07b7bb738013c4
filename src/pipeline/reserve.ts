import type { Route } from '../core/ports.ts'
import { createQuote, type Quote, type QuoteCandidate, type WaitForStore } from '../governance/reservation.ts'
import { outputLimit } from '../governance/access.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { waitForStore, type Parsed, type Reserved } from './exchange.ts'
import type { Services } from './services.ts'

/** Applies the key's rate limits and reserves the worst-case cost of the request. Throws 429 or 402. */
export function reserve(parsed: Parsed, services: Services): MaybePromise<Reserved> {
  const { resolved, size } = parsed
  // If a prompt may exceed a model's context window, its worst-case cost depends on the estimate.
  const prepared = resolved.routes.some((route) => size.needsEstimate(route)) ? size.prepare() : undefined
  return isPromise(prepared) ? prepared.then(() => reserveQuote(parsed, services)) : reserveQuote(parsed, services)
}

function reserveQuote(parsed: Parsed, services: Services): MaybePromise<Reserved> {
  const wait: WaitForStore = (pending) => waitForStore(parsed, pending, services)
  return chain(services.ledger.reserve(parsed.key, quote(parsed), wait), (reservation) => {
    parsed.reservation = reservation
    return parsed as Reserved
  })
}

/**
 * Returns the worst-case cost over all routes, because a fallback must not cost more than the reserved amount.
 * @param mayCallUpstream False if tokens must be counted without calling an upstream.
 */
export function quote(parsed: Parsed, mayCallUpstream: boolean = true): Quote {
  const { prompt, resolved, size, margin, key } = parsed
  const candidateOf = (route: Route): QuoteCandidate => {
    const counter = size.counterFor(route)
    const candidate = { model: route.model, promptTokens: size.tokensToReserve(route) }
    if (counter === undefined || (counter.callsUpstream && !mayCallUpstream)) return candidate
    return { ...candidate, count: counter.count, callsUpstream: counter.callsUpstream }
  }
  return createQuote({
    candidates: () => resolved.routes.map(candidateOf),
    promptTokens: () => size.bound,
    countPrompt: () => size.count(),
    outputTokens: outputLimit(key, prompt, resolved.routes[0].model),
    choices: prompt.settings.choices ?? 1,
    margin,
  })
}
