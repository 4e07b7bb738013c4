import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import type { Route } from '../core/ports.ts'
import { outputLimit } from '../governance/virtual-key.ts'
import { createQuote, type Quote, type QuoteCandidate, type WaitForStore } from '../governance/reservation.ts'
import { type Parsed, type Reserved, waitForStore } from './exchange.ts'
import type { Services } from './services.ts'

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

/** Adds a route for each other model that the provider of a route may call. */
function withOtherModels(routes: readonly Route[], otherModels: readonly string[]): readonly Route[] {
  return routes.flatMap((route) => {
    const models = otherModels.flatMap((id) => route.provider.model(id) ?? [])
    return [route, ...models.map((model) => ({ ...route, model }))]
  })
}

/** Returns the worst case over all routes, because a fallback must not cost more than the reserved amount. */
export function quote(parsed: Parsed, mayCallUpstream: boolean = true): Quote {
  const { prompt, resolved, size, margin, key } = parsed
  const { routes } = resolved
  const { otherModels } = size
  const candidateOf = (route: Route): QuoteCandidate => {
    const counter = size.counterFor(route)
    const cacheWrites = size.billedCacheWrites(route)
    const candidate = { model: route.model, promptTokens: size.tokensToReserve(route), cacheWrites }
    if (counter === undefined || (counter.callsUpstream && !mayCallUpstream)) return candidate
    return { ...candidate, count: counter.count, callsUpstream: counter.callsUpstream }
  }
  return createQuote({
    candidates: () => (otherModels === undefined ? routes : withOtherModels(routes, otherModels)).map(candidateOf),
    promptTokens: () => size.bound,
    countPrompt: () => size.count(),
    outputTokens: outputLimit(key, prompt, routes[0].model),
    extraOutputTokens: size.extraOutputTokens(routes[0].model),
    outputs: size.outputs,
    margin,
  })
}
