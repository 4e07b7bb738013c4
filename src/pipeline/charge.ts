import { makeBill, type Bill } from '../billing/bill.ts'
import { NO_USAGE, promptTokens, type Completion, type Usage } from '../core/answer.ts'
import { add, nano, times, ZERO } from '../core/money.ts'
import type { Meter } from '../core/ports.ts'
import { textOfPart } from '../core/prompt.ts'
import type { Answered, Planned } from './stages.ts'
import { withPrompt } from './tries.ts'

type Billed = Pick<Answered, 'plan' | 'prompt' | 'resolved' | 'route' | 'size' | 'reservation' | 'margin'>

export const PASSTHROUGH = 'Passthrough (no optimization needed)'

/** The bill of a whole answer, by the upstream's usage or, where it left out something, by our own count. */
export function billFor(answered: Answered, completion: Completion, meter: Meter): Bill {
  const { usage, parts } = completion
  const isTold = usage !== undefined && promptTokens(usage) > 0 && (usage.outputTokens > 0 || parts.length === 0)
  if (isTold) return billOf(answered, usage, false)
  return billForPart(answered, completion, meter)
}

/**
 * The bill of an answer that broke off or was left. What the upstream had reported by then may lag behind what it had
 * sent: the greater of its count and ours is taken, and called an estimate. Ours never passes the limit that the
 * upstream was held to: more it cannot have sent, and more was not reserved.
 */
export function billForPart(answered: Answered, { parts, usage }: Completion, meter: Meter): Bill {
  const { plan, prompt, reservation } = answered
  if (plan.kind === 'replay') return plan.bill
  const counted = parts.reduce((sum, part) => sum + meter.tokenizer.estimate(textOfPart(part)), 0)
  const text = Math.min(counted, reservation.outputTokens * (prompt.settings.choices ?? 1))
  const came = withPrompt(usage ?? NO_USAGE, countedPrompt(answered, answered.route))
  return billOf(answered, { ...came, outputTokens: Math.max(came.outputTokens, text) }, true)
}

/**
 * The bill of a request that got no answer, undefined when no upstream call was paid. The key is billed the calls of
 * small models that the caller ordered by header, at most what was reserved; everything else is the operator's cost.
 */
export function billForFailure(planned: Planned): Bill | undefined {
  const { plan, margin, reservation } = planned
  if (plan.kind === 'replay') return undefined
  const { spent, ordered = ZERO, rewrite } = plan.optimized
  const actual = add(spent, plan.tries.cost(plan.counted.sent))
  if (actual === 0) return undefined
  const reserved = reservation.quote.cost(reservation.outputTokens)
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

/** The bill of a request whose caller left: the prompt and the output that came, once an upstream call has begun. */
export function billForLeft(planned: Planned): Bill | undefined {
  const { plan } = planned
  const last = plan.kind === 'ask' ? plan.tries.last() : undefined
  if (plan.kind === 'replay' || last === undefined) return billForFailure(planned)
  return billOf({ ...planned, route: last.route }, withPrompt(last.usage, countedPrompt(planned, last.route)), true)
}

/** The local count of the prompt that was sent, for a bill without the upstream's count: at most what was reserved. */
function countedPrompt({ plan, resolved, reservation }: Planned, route: Answered['route']): number {
  if (plan.kind === 'replay') return 0
  const { model } = route ?? resolved.routes[0]
  return Math.min(plan.counted.sent, reservation.quote.promptBound?.(model) ?? Infinity)
}

/** What a stream's headers say before its answer is known: the greatest answer that was reserved. */
export function expectedBill(answered: Billed): Bill {
  const { plan, reservation } = answered
  if (plan.kind === 'replay') return plan.bill
  return billOf(answered, usageFor(plan.counted.sent, reservation.outputTokens), true)
}

function billOf(answered: Billed, usage: Usage, estimated: boolean): Bill {
  const { plan, prompt, resolved, size, reservation, margin } = answered
  if (plan.kind === 'replay') return plan.bill
  const route = answered.route ?? resolved.routes[0]
  const { model } = route
  const longest = Math.max(model.maxOutputTokens, reservation.outputTokens)
  return makeBill({
    price: model.price,
    margin,
    strategy: plan.optimized.rewrite?.strategy ?? PASSTHROUGH,
    counted: plan.counted,
    usage,
    ceiling: { prompt: size.reportable(route), output: longest * (prompt.settings.choices ?? 1) },
    reserved: reservation.quote.promptBound?.(model) ?? Infinity,
    estimated,
    spent: add(plan.optimized.spent, plan.tries.costOfUnused(plan.counted.sent)),
  })
}

function usageFor(input: number, output: number): Usage {
  return { ...NO_USAGE, inputTokens: input, outputTokens: output }
}
