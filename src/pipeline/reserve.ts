import type { Route } from '../core/ports.ts'
import { createQuote, type Quote, type QuoteCandidate, type WaitForStore } from '../governance/reservation.ts'
import { outputLimit } from '../governance/access.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import type { Exchange, Parsed, Reserved } from './exchange.ts'
import type { Services } from './services.ts'
import { storeError } from '../core/errors.ts'

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

type StoreWaitOptions = Pick<Services, 'runtime' | 'storeTimeoutMs'>

/**
 * Waits for a request's store call. Rejects with `overloaded` if all store calls of the request together take longer
 * than `storeTimeoutMs`. The store call itself is not aborted.
 */
export function waitForStore<Value>(
  exchange: Exchange,
  pending: MaybePromise<Value>,
  { runtime, storeTimeoutMs }: StoreWaitOptions,
): MaybePromise<Value> {
  if (!isPromise(pending)) return pending
  const startedAt = runtime.now()
  const remainingMs = Math.max(0, storeTimeoutMs - exchange.storeMs)
  return new Promise((resolve, reject) => {
    const expire = (): void => {
      exchange.storeMs = storeTimeoutMs
      reject(storeError(`did not answer within ${storeTimeoutMs} ms`))
    }
    if (remainingMs === 0) expire()
    const cancel = runtime.after(remainingMs, expire)
    const finish = (): void => {
      cancel()
      exchange.storeMs += Math.max(0, runtime.now() - startedAt)
    }
    pending.then(
      (value) => {
        finish()
        resolve(value)
      },
      (error: unknown) => {
        finish()
        reject(error)
      },
    )
  })
}
