import { reductionPercent, savings, savingsPercent, type Bill } from '../billing/bill.ts'
import { toDollars } from '../core/money.ts'
import type { SvcMetrics } from '../formats/format.ts'

/** The bill as the formats show it in bodies and streams. Amounts become dollars when a format reads them. */
export class BillMetrics implements SvcMetrics {
  readonly #bill: Bill

  constructor(bill: Bill) {
    this.#bill = bill
  }

  get savingsPercent(): number {
    return savingsPercent(this.#bill)
  }

  get originalCost(): number {
    return toDollars(this.#bill.theoretical)
  }

  get yourCost(): number {
    return toDollars(this.#bill.actual)
  }

  get originalTokens(): number {
    return this.#bill.originalTokens
  }

  get optimizedTokens(): number {
    return this.#bill.optimizedTokens
  }

  get tokensSaved(): number {
    return this.#bill.originalTokens - this.#bill.optimizedTokens
  }

  get reductionPct(): number {
    return reductionPercent(this.#bill)
  }

  get strategy(): string {
    return this.#bill.strategy
  }

  get cache(): 'HIT' | 'MISS' {
    return this.#bill.cache
  }

  get theoreticalCost(): number {
    return toDollars(this.#bill.theoretical)
  }

  get actualCost(): number {
    return toDollars(this.#bill.actual)
  }

  get billedAmount(): number {
    return toDollars(this.#bill.billed)
  }

  get savingsUsd(): number {
    return toDollars(savings(this.#bill))
  }

  get profitMargin(): number {
    return this.#bill.margin
  }

  /** The three fields that the message format shows: what a stored answer needs to be streamed again. */
  toJSON(): Pick<SvcMetrics, 'savingsPercent' | 'originalCost' | 'yourCost'> {
    const { savingsPercent: percent, originalCost, yourCost } = this
    return { savingsPercent: percent, originalCost, yourCost }
  }
}
