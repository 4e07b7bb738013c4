import { makeBill, type Bill } from '../billing/bill.ts'
import { NO_USAGE, type Completion, type Usage } from '../core/answer.ts'
import { textOfPart } from '../core/prompt.ts'
import type { Answered, Sizer } from './stages.ts'

export const PASSTHROUGH = 'Passthrough (no optimization needed)'

/** The bill of an answer, whole or broken off, by the upstream's usage or else by our own count of what came. */
export function billFor(answered: Answered, completion: Completion, sizer: Sizer): Bill {
  const { plan } = answered
  if (plan.kind === 'replay') return plan.bill
  const estimated = completion.usage === undefined
  return billOf(answered, completion.usage ?? usageOf(plan.counted.sent, completion, sizer), estimated)
}

/** What a stream's headers say before its answer is known: the greatest answer that was reserved. */
export function expectedBill(answered: Answered): Bill {
  const { plan, reservation } = answered
  if (plan.kind === 'replay') return plan.bill
  return billOf(answered, usageFor(plan.counted.sent, reservation.outputTokens), true)
}

function billOf(answered: Answered, usage: Usage, estimated: boolean): Bill {
  const { plan, resolved, route, margin } = answered
  if (plan.kind === 'replay') return plan.bill
  return makeBill({
    price: (route ?? resolved.routes[0]).model.price,
    margin,
    strategy: plan.optimized.rewrite?.strategy ?? PASSTHROUGH,
    counted: plan.counted,
    usage,
    estimated,
    spent: plan.optimized.spent,
  })
}

function usageOf(sent: number, completion: Completion, sizer: Sizer): Usage {
  const output = completion.parts.reduce((sum, part) => sum + sizer.text(textOfPart(part)), 0)
  return usageFor(sent, output)
}

function usageFor(input: number, output: number): Usage {
  return { ...NO_USAGE, inputTokens: input, outputTokens: output }
}
