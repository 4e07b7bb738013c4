/** Loaded on demand, with the modules for streams, background responses and explanations. */
import type { Bill } from '../billing/bill.ts'
import type { HeaderRecord } from '../core/http.ts'
import { formatUsd, type NanoUsd, NO_USAGE } from '../core/money.ts'
import type { Meter, SmallModel } from '../core/ports.ts'
import type { Forecast } from '../governance/balances.ts'
import type { Reservation } from '../governance/reservation.ts'
import { billOf, expectedPrompt, routeOf } from './charge.ts'
import type { Answered, Planned } from './exchange.ts'
import type { Services } from './services.ts'
import { answerHeaders } from './response-headers.ts'

/** Expected output of the first request of a key and model, in tokens. */
const DEFAULT_OUTPUT = 500

type History = Pick<Services, 'recentOutputs'>

/** The headers of a response whose bill is not known yet. */
export function estimateHeaders(answered: Answered, services: History & Pick<Services, 'showsMargin'>): HeaderRecord {
  const headers = answerHeaders(expectedBill(answered, services), answered.ignoredFields, services)
  if (answered.plan.kind !== 'replay') headers['x-svc-max-amount'] = formatUsd(maxAmountOf(answered))
  return headers
}

/** The amount that is reserved in the budgets. */
export function maxAmountOf({ plan, reservation }: Planned): NanoUsd {
  return plan.kind === 'replay' ? plan.bill.billed : reservation.quote.cost(reservation.outputTokens)
}

/**
 * Assumes an answer of typical length, and the prompt-cache reads that the gateway's record of the conversation predicts.
 * The worst case is often 100 times as expensive.
 */
export function expectedBill(planned: Planned, { recentOutputs }: History): Bill {
  const { plan, key, resolved } = planned
  if (plan.kind === 'replay') return plan.bill
  const recent = recentOutputs.get(key.id)?.get(resolved.name)
  const outputTokens = Math.min(medianOf(recent) ?? DEFAULT_OUTPUT, reservedOutputOf(planned))
  const route = routeOf(planned)
  const usage = { ...expectedPrompt(planned, plan, route), outputTokens }
  return billOf(planned, plan, { route, usage, isEstimated: true })
}

/** Assumes an answer of the reserved length. */
export function billForReservedLength(planned: Planned): Bill {
  const { plan } = planned
  if (plan.kind === 'replay') return plan.bill
  const usage = { ...NO_USAGE, inputTokens: plan.counts.sent, outputTokens: reservedOutputOf(planned) }
  return billOf(planned, plan, { route: routeOf(planned), usage, isEstimated: true })
}

function reservedOutputOf({ size, reservation }: Planned): number {
  return reservation.outputTokens * size.outputs
}

function medianOf(outputs: readonly number[] = []): number | undefined {
  const sorted = outputs.toSorted((a, b) => a - b)
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]]
  return low === undefined || high === undefined ? undefined : Math.round((low + high) / 2)
}

/** Reserves nothing, for a plan whose request is not sent. */
export function emptyReservation({
  rate,
  quote: forecastQuote,
  outputTokens,
}: Pick<Forecast, 'rate' | 'quote' | 'outputTokens'>): Reservation {
  return {
    isReserved: false,
    rate,
    quote: forecastQuote,
    outputTokens,
    settle: () => Promise.resolve(),
    settlement: () => ({ reservationId: '', charges: [], tallies: [] }),
  }
}

/** Typical length of a small model's answer, as a fraction of its input. */
const ANSWER_TO_INPUT_RATIO = 1 / 3
const CHARACTERS_PER_TOKEN = 4

/** A small model that is not called. Its reply is the beginning of the text, at the price of a call of that length. */
export function simulateSmallModel(
  small: SmallModel | undefined,
  { tokenizer: { estimate } }: Pick<Meter, 'tokenizer'>,
): SmallModel | undefined {
  if (small === undefined) return undefined
  return {
    name: small.name,
    price: small.price,
    ask: async ({ instruction, text, maxTokens }) => {
      const answer = text.slice(0, Math.min(text.length * ANSWER_TO_INPUT_RATIO, maxTokens * CHARACTERS_PER_TOKEN))
      return { text: answer, spent: small.price(estimate(instruction) + estimate(text), estimate(answer)) }
    },
  }
}
