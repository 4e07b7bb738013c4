import { times } from '../core/money.ts'
import { listCost } from '../billing/bill.ts'
import type { Quote } from '../governance/reservation.ts'
import { greatestAnswer } from '../governance/access.ts'
import { chain, type MaybePromise } from '../core/maybe-promise.ts'
import type { Parsed, Reserved } from './exchange.ts'
import type { Services } from './services.ts'

/** Reserves a place and the worst case's money, before anything is spent: 429 or 402. */
export function reserve(parsed: Parsed, services: Services): MaybePromise<Reserved> {
  return chain(services.ledger.reserve(parsed.key, quote(parsed)), (reservation) => {
    parsed.reservation = reservation
    return parsed as Reserved
  })
}

/** The dearest of the routes decides: a fallback must not cost more than what was reserved. */
export function quote({ prompt, resolved, size, margin, key }: Parsed): Quote {
  const models = resolved.routes.map((route) => route.model)
  const choices = prompt.settings.choices ?? 1
  return {
    get promptTokens() {
      return size.estimate
    },
    outputTokens: greatestAnswer(key, prompt, resolved.routes[0].model),
    cost: (outputTokens) => {
      const costs = models.map((model) => times(listCost(model.price, size.bound, outputTokens * choices), margin))
      return costs.reduce((greatest, cost) => (cost > greatest ? cost : greatest))
    },
  }
}
