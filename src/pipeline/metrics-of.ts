import { reductionPercent, savings, savingsPercent, type Bill } from '../billing/bill.ts'
import { toDollars } from '../core/money.ts'
import type { Metrics } from '../formats/format.ts'

/** The bill as the formats show it in bodies and streams. */
export function metricsOf(bill: Bill): Metrics {
  return {
    savingsPercent: savingsPercent(bill),
    originalCost: toDollars(bill.theoretical),
    yourCost: toDollars(bill.actual),
    originalTokens: bill.originalTokens,
    optimizedTokens: bill.optimizedTokens,
    tokensSaved: bill.originalTokens - bill.optimizedTokens,
    reductionPct: reductionPercent(bill),
    strategy: bill.strategy,
    cache: bill.cache,
    theoreticalCost: toDollars(bill.theoretical),
    actualCost: toDollars(bill.actual),
    billedAmount: toDollars(bill.billed),
    savingsUsd: toDollars(savings(bill)),
    profitMargin: bill.margin,
  }
}
