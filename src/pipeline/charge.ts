import { makeBill, type Bill } from '../billing/bill.ts'
import { NO_USAGE, promptTokens, type Completion, type Usage } from '../core/answer.ts'
import type { Meter } from '../core/ports.ts'
import { textOfPart } from '../core/prompt.ts'
import type { Answered } from './stages.ts'

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
  const came = withPrompt(usage ?? NO_USAGE, plan.counted.sent)
  return billOf(answered, { ...came, outputTokens: Math.max(came.outputTokens, text) }, true)
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
    spent: plan.optimized.spent,
  })
}

/** No prompt is empty: an upstream that reports nothing of it has not counted it. */
function withPrompt(usage: Usage, counted: number): Usage {
  return promptTokens(usage) > 0 ? usage : { ...usage, inputTokens: counted }
}

function usageFor(input: number, output: number): Usage {
  return { ...NO_USAGE, inputTokens: input, outputTokens: output }
}
