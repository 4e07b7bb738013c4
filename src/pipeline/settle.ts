import type { Bill } from '../billing/bill.ts'
import { ZERO, type NanoUsd } from '../core/money.ts'
import type { Used } from '../governance/reservation.ts'
import type { Answered, Outcome, Parts, Planned, Reached, Reserved } from './stages.ts'

/** Ends a request that was answered, in whole or in part: the truth replaces what was held, and is written down. */
export async function settle(answered: Answered, bill: Bill, outcome: Outcome, parts: Parts): Promise<void> {
  await close(answered, usedBy(answered, bill), { ...outcome, bill }, parts)
}

/** Ends a request that was refused or failed before an answer: what was held is given back. */
export async function release(reached: Reached, outcome: Outcome, parts: Parts): Promise<void> {
  if (!('reservation' in reached)) return parts.records.record(reached, outcome)
  await close(reached, nothingUsed(reached), outcome, parts)
}

async function close(reserved: Reserved, used: Used, outcome: Outcome, parts: Parts): Promise<void> {
  if (isPlanned(reserved) && reserved.plan.kind === 'ask') reserved.plan.keep.finish(outcome)
  const settled = reserved.reservation.settle(used).catch((cause: unknown) => {
    parts.records.unsettled(reserved, used, cause)
  })
  await Promise.all([settled, parts.records.record(reserved, outcome)])
}

/** A cache hit uses no tokens of a limit: nothing was sent. */
function usedBy(answered: Answered, bill: Bill): Used {
  const hit = bill.cache === 'HIT'
  return {
    promptTokens: hit ? 0 : bill.optimizedTokens,
    completionTokens: hit ? 0 : bill.completionTokens,
    savedTokens: bill.originalTokens - bill.optimizedTokens,
    theoretical: bill.theoretical,
    actual: bill.actual,
    billed: bill.billed,
    model: answered.resolved.name,
  }
}

function nothingUsed(reserved: Reserved): Used {
  const spent = isPlanned(reserved) ? spentOf(reserved) : ZERO
  return {
    promptTokens: 0,
    completionTokens: 0,
    savedTokens: 0,
    theoretical: ZERO,
    actual: spent,
    billed: ZERO,
    model: reserved.resolved.name,
  }
}

function isPlanned(reserved: Reserved): reserved is Planned {
  return 'plan' in reserved
}

/** Small models were paid also for a request whose main call failed. */
function spentOf({ plan }: Planned): NanoUsd {
  return plan.kind === 'ask' ? plan.optimized.spent : ZERO
}
