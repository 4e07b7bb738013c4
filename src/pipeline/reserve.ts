import { times } from '../core/money.ts'
import { listCost } from '../billing/bill.ts'
import type { Quote } from '../governance/reservation.ts'
import { greatestAnswer } from '../governance/access.ts'
import type { Claimed, Parts, Reserved, Understood } from './stages.ts'

/** Takes a place and the worst case's money, before anything is spent: 429 or 402. */
export async function reserve(claimed: Claimed, parts: Parts): Promise<Reserved> {
  const reservation = await parts.ledger.reserve(claimed.key, quote(claimed))
  return { ...claimed, reservation }
}

/** The dearest of the routes decides: a fallback must not cost more than what was reserved. */
export function quote(understood: Understood): Quote {
  const { prompt, resolved, size, margin, key } = understood
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
