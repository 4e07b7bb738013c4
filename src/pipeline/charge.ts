import { type Bill, makeBill, makeHitBill, reductionPercent, savings, savingsPercent } from '../billing/bill.ts'
import { type Completion, NO_USAGE, promptTokens, type Usage } from '../core/answer.ts'
import type { MaybePromise } from '../core/async.ts'
import { add, nano, type NanoUsd, times, toDollars, ZERO } from '../core/money.ts'
import type { Meter } from '../core/ports.ts'
import { textOfPart } from '../core/prompt.ts'
import { withPrompt } from '../upstream/attempts.ts'
import type { Answered, AskPlan, Planned, Route } from './exchange.ts'
import { quote } from './reserve.ts'
import type { SvcMetrics } from '../formats/format.ts'

export const PASSTHROUGH = 'Passthrough (no optimization needed)'

/** An answer to bill: the usage that its upstream reported, and its text if needed. */
export interface BilledAnswer {
  readonly usage: Usage | undefined
  completion(): Completion
}

/**
 * Counts a long prompt with pauses if its bill needs the local count. Returns undefined if there is nothing to wait
 * for.
 */
export function prepareBill({ plan }: Planned): MaybePromise<void> {
  return plan.kind === 'ask' && plan.attempts.isUnreported ? plan.counted.prepare?.() : undefined
}

/** Returns the bill of a whole answer by the upstream's usage, and by the local count for missing values. */
export function billFor(answered: Answered, answer: BilledAnswer, meter: Meter): Bill {
  const { plan } = answered
  if (plan.kind === 'replay') return plan.bill
  const { usage } = answer
  if (usage !== undefined && promptTokens(usage) > 0 && isOutputReported(usage, answer)) {
    return billOf(answered, plan, { route: routeOf(answered), usage, estimated: false })
  }
  return billForPart(answered, answer, meter)
}

function isOutputReported(usage: Usage, answer: BilledAnswer): boolean {
  if (usage.outputTokens > 0) return true
  const { parts, furtherText = '' } = answer.completion()
  return parts.length === 0 && furtherText === ''
}

/**
 * Returns the bill of an incomplete answer. The usage that the upstream reported may be behind the output that it sent.
 * The greater of its count and the local count is billed and marked as an estimate. The local count is at most the
 * output limit that was sent to the upstream, because more was not reserved.
 */
export function billForPart(answered: Answered, answer: BilledAnswer, meter: Meter): Bill {
  const { plan, prompt, reservation } = answered
  if (plan.kind === 'replay') return plan.bill
  const { parts, furtherText = '' } = answer.completion()
  const texts = [...parts.map(textOfPart), furtherText]
  const counted = texts.reduce((sum, one) => sum + meter.tokenizer.estimate(one), 0)
  const text = Math.min(counted, reservation.outputTokens * (prompt.settings.choices ?? 1))
  const route = routeOf(answered)
  const came = withPrompt(answer.usage ?? NO_USAGE, () => countedPrompt(answered, route))
  const usage = { ...came, outputTokens: Math.max(came.outputTokens, text) }
  return billOf(answered, plan, { route, usage, estimated: true })
}

/**
 * Returns the bill of a request without an answer, or undefined if no upstream call was paid. The key is billed for the
 * calls of small models that the caller ordered by header, at most the reserved amount. The operator pays the rest.
 */
export function billForFailure(planned: Planned): Bill | undefined {
  const { plan, margin, reservation } = planned
  if (plan.kind === 'replay') return undefined
  const { spent, ordered = ZERO, rewrite } = plan.optimized
  const actual = add(
    spent,
    plan.attempts.cost(() => plan.counted.sent),
  )
  if (actual === 0) return undefined
  const reserved = quote(planned).cost(reservation.outputTokens)
  return {
    originalTokens: 0,
    optimizedTokens: 0,
    completionTokens: 0,
    theoretical: ZERO,
    actual,
    billed: nano(Math.min(times(ordered, margin), reserved)),
    margin,
    cache: 'MISS',
    strategy: rewrite?.strategy ?? PASSTHROUGH,
    estimated: true,
  }
}

/** Returns the bill of a request whose caller disconnected: the prompt and the received output of a started call. */
export function billForLeft(planned: Planned): Bill | undefined {
  const { plan } = planned
  const last = plan.kind === 'ask' ? plan.attempts.last() : undefined
  if (plan.kind === 'replay' || last === undefined) return billForFailure(planned)
  const usage = withPrompt(last.usage, () => countedPrompt(planned, last.route))
  return billOf(planned, plan, { route: last.route, usage, estimated: true })
}

/** Returns the local count of the sent prompt, for a bill without the upstream's count. At most what was reserved. */
function countedPrompt({ plan, reservation }: Planned, { model }: Route): number {
  if (plan.kind === 'replay') return 0
  return Math.min(plan.counted.sent, reservation.quote.promptBound?.(model) ?? Infinity)
}

/** Returns the bill in the headers of a stream. It assumes the longest answer that was reserved. */
export function expectedBill(planned: Planned): Bill {
  const { plan, reservation } = planned
  if (plan.kind === 'replay') return plan.bill
  const usage = { ...NO_USAGE, inputTokens: plan.counted.sent, outputTokens: reservation.outputTokens }
  return billOf(planned, plan, { route: routeOf(planned), usage, estimated: true })
}

interface Billed {
  readonly route: Route
  readonly usage: Usage
  readonly estimated: boolean
}

function billOf(planned: Planned, plan: AskPlan, { route, usage, estimated }: Billed): Bill {
  const { margin, prompt, size, reservation } = planned
  const { optimized, counted, attempts } = plan
  const { model } = route
  const longest = Math.max(model.maxOutputTokens, reservation.outputTokens)
  return makeBill({
    price: model.price,
    margin,
    strategy: optimized.rewrite?.strategy ?? PASSTHROUGH,
    ...(optimized.rewrite !== undefined && { counted }),
    usage,
    ceiling: { prompt: size.reportable(route), output: longest * (prompt.settings.choices ?? 1) },
    reserved: reservation.quote.promptBound?.(model) ?? Infinity,
    estimated,
    spent: add(
      optimized.spent,
      attempts.costOfUnused(() => counted.sent),
    ),
  })
}

function routeOf({ route, resolved }: Planned): Route {
  return route ?? resolved.routes[0]
}

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

/** An answer that was not generated for this request. */
interface HitAnswer {
  readonly promptTokens: number
  readonly usage: Usage | undefined
  readonly spent: NanoUsd
}

/** Returns the bill of a cache hit, with the cost of an own upstream call as the saved amount. */
export function hitBill(
  { resolved, margin }: Pick<Planned, 'resolved' | 'margin'>,
  { promptTokens, usage, spent }: HitAnswer,
): Bill {
  return makeHitBill({
    price: resolved.routes[0].model.price,
    margin,
    originalTokens: promptTokens,
    completionTokens: usage?.outputTokens ?? 0,
    spent,
  })
}
