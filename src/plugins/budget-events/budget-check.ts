/** Which shares of a budget may have been reached, and which event that is. Pure, without access to the store. */
import * as z from 'zod/mini'
import { parseJson } from '../../core/json.ts'
import { toDollars, toNanoUsd } from '../../core/money.ts'
import { DURATION_CODES, type Level, quotaOf, type SettledEntry } from '../../core/store.ts'
import type { BudgetCaller } from '../../governance/budget-observer.ts'
import { ROLLING_STEPS, windowName, windowStart } from '../../governance/levels.ts'
import type { Limit } from '../../governance/limits.ts'
import type { BudgetEvent } from '../../kernel/plugin.ts'

/** The log of budgets whose amount must be compared with shares. */
export const CHECK_LOG = 'budget-checks'

const DAY_MS = 86_400_000
/** A process that starts later does not see what happened before. */
const CHECK_TTL_MS = 7 * DAY_MS

const windowSchema = z.union([
  z.enum(DURATION_CODES),
  z.literal(DURATION_CODES.map((code) => `rolling ${code}` as const)),
  z.literal('session'),
])

const budgetFields = {
  level: z.enum(['key', 'shared', 'customer', 'parent', 'user', 'session']),
  keyId: z.exactOptional(z.string()),
  budgetId: z.exactOptional(z.string()),
  customer: z.exactOptional(z.string()),
  user: z.exactOptional(z.string()),
  session: z.exactOptional(z.string()),
  models: z.exactOptional(z.array(z.string())),
  limitUsd: z.number(),
  window: windowSchema,
  windowStart: z.exactOptional(z.number()),
  resetsAt: z.number(),
}

type BudgetFacts = Omit<BudgetEvent, 'id' | 'type' | 'share' | 'spentUsd' | 'at'>

export const eventSchema: z.ZodMiniType<BudgetEvent> = z.object({
  id: z.string(),
  type: z.literal('budget'),
  ...budgetFields,
  share: z.number(),
  spentUsd: z.number(),
  at: z.number(),
})

/** A budget that may have reached shares of its maximum. */
export interface BudgetCheck {
  /** Names the budget and its window. Part of the storage keys of its events. */
  readonly name: string
  readonly counter: string
  /** In nano-dollars. */
  readonly max: number
  readonly carriedAmount: number
  readonly shares: readonly number[]
  /** True if the budget did not cover a request. */
  readonly isRefusal: boolean
  /** How long an event must be remembered, so that the window has no second one. */
  readonly ttlMs: number
  /** True for a window without an end, whose events are remembered while the budget is used. */
  readonly isOpen: boolean
  readonly budget: BudgetFacts
}

const checkSchema: z.ZodMiniType<BudgetCheck> = z.object({
  name: z.string(),
  counter: z.string(),
  max: z.number(),
  carriedAmount: z.number(),
  shares: z.array(z.number()),
  isRefusal: z.boolean(),
  ttlMs: z.number(),
  isOpen: z.boolean(),
  budget: z.object(budgetFields),
})

/** Returns undefined for an entry of another version. */
export function parseCheck(value: string): BudgetCheck | undefined {
  return checkSchema.safeParse(parseJson(value)).data
}

export interface CheckedBudget {
  readonly caller: BudgetCaller
  readonly limit: Limit
  readonly shares: readonly number[]
  readonly isRefusal: boolean
}

export function entryOf(checked: CheckedBudget, now: number): SettledEntry {
  const value = JSON.stringify(checkOf(checked, now))
  return { log: CHECK_LOG, at: now, value, ttlMs: CHECK_TTL_MS, quota: quotaOf('budget-check', checked.caller.key.id) }
}

function checkOf({ caller, limit, shares, isRefusal }: CheckedBudget, now: number): BudgetCheck {
  const { counter, max, carriedAmount = 0 } = limit
  return {
    name: budgetName(limit),
    counter,
    max,
    carriedAmount,
    shares,
    isRefusal,
    ttlMs: rememberedMs(limit, now),
    isOpen: limit.window.type !== 'calendar',
    budget: factsOf(caller, limit),
  }
}

/** The counter of a rolling window is that of one step, but a window has one event for each share. */
export function budgetName({ window, counter }: Limit): string {
  return window.type === 'rolling' ? counter.slice(0, counter.lastIndexOf(':')) : counter
}

function rememberedMs({ window, expiresAt }: Pick<Limit, 'window' | 'expiresAt'>, now: number): number {
  if (window.type === 'rolling') {
    const { stepMs, count } = ROLLING_STEPS[window.every]
    return stepMs * count
  }
  return window.type === 'idle' ? 2 * (expiresAt - now) : expiresAt - now + DAY_MS
}

function factsOf({ key, context }: BudgetCaller, limit: Limit): BudgetFacts {
  const { level, owner, max, window, period, models } = limit
  const { customer, user, session } = context
  const ownerId = owner.slice(owner.indexOf(':') + 1)
  return {
    level,
    ...ownerOf(),
    ...(models !== undefined && { models }),
    limitUsd: toDollars(toNanoUsd(max)),
    window: windowName(window),
    ...(window.type !== 'idle' && { windowStart: windowStart(limit) }),
    resetsAt: period.end,
  }

  function ownerOf(): Pick<BudgetEvent, 'keyId' | 'budgetId' | 'customer' | 'user' | 'session'> {
    if (level === 'key') return { keyId: key.id }
    if (level === 'shared') return { budgetId: ownerId }
    if (level === 'customer' || level === 'parent') return { customer: ownerId }
    return {
      ...(customer === undefined ? { keyId: key.id } : { customer }),
      ...(user !== undefined && { user }),
      ...(level === 'session' && session !== undefined && { session }),
    }
  }
}

/** `open`: requests that are running may reach them. */
export interface CheckedShares {
  readonly reached: readonly number[]
  readonly open: readonly number[]
}

export function compareShares({ shares, max, carriedAmount, isRefusal }: BudgetCheck, level: Level): CheckedShares {
  const spent = carriedAmount + level.spent
  const isReached = (share: number): boolean => spent >= share * max || (isRefusal && share === 1)
  return {
    reached: shares.filter(isReached),
    open: shares.filter((share) => !isReached(share) && spent + level.held >= share * max),
  }
}

export function eventOf(
  { budget, carriedAmount }: BudgetCheck,
  {
    id,
    share,
    spent,
    at,
  }: { readonly id: string; readonly share: number; readonly spent: number; readonly at: number },
): BudgetEvent {
  return { id, type: 'budget', ...budget, share, spentUsd: toDollars(toNanoUsd(carriedAmount + spent)), at }
}
