import { formatUsd } from '../core/money.ts'
import { reductionPercent, savings, type Bill } from './bill.ts'

/** The `X-Svc-*` headers of a bill, names in lower case. */
export function billHeaders(bill: Bill): Record<string, string> {
  return {
    'x-svc-original-tokens': String(bill.originalTokens),
    'x-svc-optimized-tokens': String(bill.optimizedTokens),
    'x-svc-tokens-saved': String(bill.originalTokens - bill.optimizedTokens),
    'x-svc-reduction-pct': `${reductionPercent(bill)}%`,
    'x-svc-savings-usd': formatUsd(savings(bill)),
    'x-svc-strategy': headerSafe(bill.strategy),
    'x-svc-theoretical-cost': formatUsd(bill.theoretical),
    'x-svc-actual-cost': formatUsd(bill.actual),
    'x-svc-billed-amount': formatUsd(bill.billed),
    'x-svc-profit-margin': `${bill.margin}x`,
    'x-svc-cache': bill.cache,
    ...(bill.estimated ? { 'x-svc-estimated': 'true' } : {}),
  }
}

/** A header value may only hold printable ASCII: everything else becomes `?`. */
export function headerSafe(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?')
}
