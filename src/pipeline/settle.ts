import type { Bill } from '../billing/bill.ts'
import { ZERO } from '../core/money.ts'
import type { Used } from '../governance/reservation.ts'
import { billForFailure, billForLeft } from './charge.ts'
import type { Answered, Outcome, Parts, Planned, Reached, Reserved } from './stages.ts'

/** Ends a request that was answered, in whole or in part: the truth replaces what was held, and is written down. */
export async function settle(answered: Answered, bill: Bill, outcome: Outcome, parts: Parts): Promise<void> {
  await close(answered, usedBy(answered, bill), { ...outcome, bill }, parts)
}

/**
 * Ends a request that was refused, failed or was left before its answer. What was held is given back, but for what
 * `billForFailure` and `billForLeft` say. The items of a batch have no caller who could leave: an item that is ended
 * early is tried again.
 */
export async function release(reached: Reached, outcome: Outcome, parts: Parts): Promise<void> {
  if (!('reservation' in reached)) return parts.records.record(reached, outcome)
  const isLeft = reached.signal.aborted && reached.caller !== undefined
  const bill = isPlanned(reached) ? (isLeft ? billForLeft : billForFailure)(reached) : undefined
  if (bill === undefined) await close(reached, nothingUsed(reached), outcome, parts)
  else await close(reached, usedBy(reached, bill), { ...outcome, bill }, parts)
}

async function close(reserved: Reserved, used: Used, outcome: Outcome, parts: Parts): Promise<void> {
  if (isPlanned(reserved) && reserved.plan.kind === 'ask') {
    reserved.plan.keep.finish(outcome)
    const usage = outcome.completion?.usage
    if (usage !== undefined) void reserved.plan.optimized.reportCacheRead?.(usage.cacheReadTokens)
  }
  const settled = reserved.reservation.settle(used).catch((cause: unknown) => {
    parts.records.unsettled(reserved, used, cause)
  })
  await Promise.all([settled, parts.records.record(reserved, outcome)])
}

/** A cache hit uses no tokens of a limit: nothing was sent. */
function usedBy(reserved: Reserved, bill: Bill): Used {
  const hit = bill.cache === 'HIT'
  return {
    promptTokens: hit ? 0 : bill.optimizedTokens,
    completionTokens: hit ? 0 : bill.completionTokens,
    savedTokens: bill.originalTokens - bill.optimizedTokens,
    theoretical: bill.theoretical,
    actual: bill.actual,
    billed: bill.billed,
    model: reserved.resolved.name,
  }
}

function nothingUsed(reserved: Reserved): Used {
  return {
    promptTokens: 0,
    completionTokens: 0,
    savedTokens: 0,
    theoretical: ZERO,
    actual: ZERO,
    billed: ZERO,
    model: reserved.resolved.name,
  }
}

function isPlanned(reserved: Reserved): reserved is Planned {
  return 'plan' in reserved
}
