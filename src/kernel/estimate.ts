/** Loaded on demand, with the modules for streams, background responses and explanations. */
import type { Bill } from '../billing/bill.ts'
import type { HeaderRecord } from '../core/http.ts'
import { formatUsd, type NanoUsd, NO_USAGE } from '../core/money.ts'
import { billOf, expectedPrompt, servingRoute } from './charge.ts'
import type { Responded, Planned } from './exchange.ts'
import type { Services } from './services.ts'
import { responseHeaders } from './response-headers.ts'

/** Expected output of the first request of a key and model, in tokens. */
const DEFAULT_OUTPUT = 500

type History = Pick<Services, 'recentOutputs'>

/** The headers of a response whose bill is not known yet. */
export function estimateHeaders(responded: Responded, services: History & Pick<Services, 'showsMargin'>): HeaderRecord {
  const headers = responseHeaders(expectedBill(responded, services), responded.ignoredFields, services)
  if (responded.plan.kind !== 'replay') headers['x-svc-max-amount'] = formatUsd(maxAmountOf(responded))
  return headers
}

/** The amount that is reserved in the budgets. */
export function maxAmountOf({ plan, grant }: Planned): NanoUsd {
  return plan.kind === 'replay' ? plan.bill.billed : grant.quote.cost(grant.outputTokens)
}

/**
 * Assumes a response of typical length, and the prompt-cache reads that the gateway's record of the conversation predicts.
 * The worst case is often 100 times as expensive.
 */
export function expectedBill(planned: Planned, { recentOutputs }: History): Bill {
  const { plan, key, resolved } = planned
  if (plan.kind === 'replay') return plan.bill
  const recent = recentOutputs.of(key.id, resolved.name)
  const outputTokens = Math.min(medianOf(recent) ?? DEFAULT_OUTPUT, reservedOutputOf(planned))
  const route = servingRoute(planned)
  const usage = { ...expectedPrompt(planned, plan, route), outputTokens }
  return billOf(planned, plan, { route, usage, isEstimated: true })
}

/** Assumes a response of the reserved length. */
export function billForReservedLength(planned: Planned): Bill {
  const { plan } = planned
  if (plan.kind === 'replay') return plan.bill
  const usage = { ...NO_USAGE, inputTokens: plan.counts.sent, outputTokens: reservedOutputOf(planned) }
  return billOf(planned, plan, { route: servingRoute(planned), usage, isEstimated: true })
}

function reservedOutputOf({ size, grant }: Planned): number {
  return grant.outputTokens * size.outputs
}

function medianOf(outputs: readonly number[]): number | undefined {
  const sorted = outputs.toSorted((a, b) => a - b)
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]]
  return low === undefined || high === undefined ? undefined : Math.round((low + high) / 2)
}
