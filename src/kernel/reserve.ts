import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import type { Route } from '../core/ports.ts'
import { outputLimit } from '../governance/virtual-key.ts'
import {
  type Quote,
  type QuoteCandidate,
  type Reservation,
  type WaitForStore,
  WorstCaseQuote,
} from '../governance/reservation.ts'
import { type Authenticated, type Grant, type Parsed } from './exchange.ts'
import { routeName } from './resolve-model.ts'
import type { Services } from './services.ts'
import { waitForStore } from './wait-for-store.ts'

/** What a stage adds that reserves. */
export interface Granted {
  readonly reservation: Reservation
  readonly grant: Grant
}

/** Throws if a limit (429) or a budget (402) does not cover the request. May grant fewer output tokens than requested. */
export function reserve(parsed: Parsed, services: Services): MaybePromise<Granted> {
  const { resolved, size } = parsed
  // If a prompt may exceed a model's context window, its worst-case cost depends on the estimate.
  const prepared = resolved.routes.some((route) => size.needsEstimate(route)) ? size.prepareEstimate() : undefined
  return isPromise(prepared)
    ? prepared.then(() => reserveQuote(parsed, quote(parsed), services))
    : reserveQuote(parsed, quote(parsed), services)
}

export function reserveQuote(
  authenticated: Authenticated,
  quoted: Quote,
  services: Pick<Services, 'ledger' | 'runtime' | 'storeTimeoutMs'>,
): MaybePromise<Granted> {
  const wait: WaitForStore = (pending) => waitForStore(authenticated, pending, services)
  return chain(services.ledger.reserve(authenticated.caller, quoted, wait), (reservation) => {
    authenticated.settlement?.accept(reservation)
    return { reservation, grant: reservation }
  })
}

/** Returns the worst case over all routes, because a fallback must not cost more than the reserved amount. */
export function quote(parsed: Parsed, mayCallUpstream: boolean = true): Quote {
  const { prompt, resolved, size, margin, key, caller } = parsed
  const { routes } = resolved
  const { fields } = size
  const candidateOf = (route: Route): QuoteCandidate => {
    const counter = size.counterFor(route)
    const cacheWrites = size.billedCacheWrites(route)
    const price = fields?.dearestPrice(route)
    const candidate = { model: route.model, price, promptTokens: size.tokensToReserve(route), cacheWrites }
    if (counter === undefined || (counter.callsUpstream && !mayCallUpstream)) return candidate
    return { ...candidate, count: counter.count, callsUpstream: counter.callsUpstream }
  }
  const allRoutes = (): readonly Route[] => fields?.withOtherModels(routes) ?? routes
  return new WorstCaseQuote({
    candidates: () => allRoutes().map(candidateOf),
    promptTokens: () => size.bound,
    countPrompt: () => size.count(),
    outputTokens: outputLimit(key, prompt.settings.maxTokens, routes[0].model),
    extraOutputTokens: size.extraOutputTokens(routes[0].model),
    outputs: size.outputs,
    // Budgets that count the vendor's charge count it once more than the bill.
    margin: caller.countsVendorCharge === true ? margin + 1 : margin,
    models: () => modelNames(resolved.name, allRoutes()),
    messages: prompt.messages,
  })
}

/** The names that limits for some models compare. */
export function modelNames(requested: string, routes: readonly Route[]): readonly string[] {
  return [requested, ...routes.map(routeName)]
}
