import { type Bill, reductionPercent, savings, savingsPercent, withoutMargin } from '../billing/bill.ts'
import type { Json } from '../core/json.ts'
import { toDollars } from '../core/money.ts'
import type { WriteMetrics } from '../formats/format.ts'
import type { Services } from './services.ts'

/** Computes the values only when they are written, because not every response contains them. */
export function metricsWriter(bill: Bill, { showsMargin }: Pick<Services, 'showsMargin'>): WriteMetrics {
  return (kind) => {
    const theoreticalCost = toDollars(bill.theoretical)
    const actualCost = toDollars(bill.actual)
    const billed_amount = toDollars(bill.billed)
    if (kind === 'summary') {
      if (!showsMargin) return { billed_amount }
      return { savings_percent: savingsPercent(bill), original_cost: theoreticalCost, your_cost: actualCost }
    }
    const details = {
      original_tokens: bill.originalTokens,
      optimized_tokens: bill.optimizedTokens,
      tokens_saved: bill.originalTokens - bill.optimizedTokens,
      reduction_pct: reductionPercent(bill),
      strategy: bill.strategy,
      cache: bill.cache,
      theoretical_cost: theoreticalCost,
      actual_cost: actualCost,
      billed_amount,
      savings_usd: toDollars(savings(bill)),
      profit_margin: bill.margin,
    }
    return showsMargin ? details : withoutMargin<Json>(details)
  }
}
