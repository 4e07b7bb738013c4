import { toNanoUsd } from '../../src/core/money.ts'
import type { FinishedRequest, FinishedBill } from '../../src/kernel/finished-request.ts'

export const START: number = Date.UTC(2026, 0, 15, 12)

export function bill(change: Partial<FinishedBill> = {}): FinishedBill {
  return {
    originalTokens: 100,
    optimizedTokens: 40,
    completionTokens: 20,
    theoretical: toNanoUsd(20_000_000),
    actual: toNanoUsd(5_000_000),
    billed: toNanoUsd(30_000_000),
    cache: 'MISS',
    strategy: 'Passthrough (no optimization needed)',
    ...change,
  }
}

export function finished(change: Partial<FinishedRequest> = {}): FinishedRequest {
  return {
    requestId: 'request',
    keyId: 'key-1',
    model: 'openai/gpt-x',
    status: 200,
    at: START,
    latencyMs: 12.5,
    bill: bill(),
    ...change,
  }
}

/** Returns a request that ended without a response. */
export function unanswered(change: Partial<FinishedRequest>): FinishedRequest {
  const { bill: _bill, ...rest } = finished(change)
  return rest
}
