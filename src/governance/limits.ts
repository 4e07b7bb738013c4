import { chain, type MaybePromise } from '../core/async.ts'
import { periodOf, type DurationCode, type Period } from '../core/store.ts'
import { createRecordTable, type LookupOptions, type RecordTable } from './record-table.ts'
import {
  limitsOf,
  storedBudget,
  storedRateLimit,
  type Allowance,
  type Budget,
  type RateLimit,
  type VirtualKey,
} from './virtual-key.ts'

/** The unit of a limit: requests, tokens, or nano-dollars. */
export type LimitKind = 'requests' | 'tokens' | 'budget'

/** One limit in its current window. */
export interface Limit {
  readonly kind: LimitKind
  /** The name of the limit in messages: `The budget of this key`. */
  readonly label: string
  readonly max: number
  readonly every: DurationCode
  readonly period: Period
  readonly counter: string
  /** The key or shared record that the limit belongs to. Each window of an owner has its own counter. */
  readonly owner: string
  /** The part of `max` that was spent in this window but is missing from the counter. See key-windows.ts. @default 0 */
  readonly carried?: number
}

/** The records that keys refer to by `budget_id` and `rate_limit_id`. */
export interface SharedLimits {
  readonly budgets: RecordTable<Budget>
  readonly rateLimits: RecordTable<RateLimit>
}

export function createSharedLimits(options: LookupOptions): SharedLimits {
  return {
    budgets: createRecordTable({ ...options, prefix: 'budget:', label: 'budget', schema: storedBudget }),
    rateLimits: createRecordTable({ ...options, prefix: 'rate-limit:', label: 'rate limit', schema: storedRateLimit }),
  }
}

/** The shared records of a key. A record is undefined if the key refers to none or to a deleted record. */
export interface SharedOfKey {
  readonly rate: RateLimit | undefined
  readonly budget: Budget | undefined
}

const NONE_SHARED: SharedOfKey = { rate: undefined, budget: undefined }

export function findShared({ rateLimitId, budgetId }: VirtualKey, shared: SharedLimits): MaybePromise<SharedOfKey> {
  if (rateLimitId === undefined && budgetId === undefined) return NONE_SHARED
  const found = rateLimitId === undefined ? undefined : shared.rateLimits.find(rateLimitId)
  return chain(found, (rate) => {
    const budget = budgetId === undefined ? undefined : shared.budgets.find(budgetId)
    return chain(budget, (record) => ({ rate, budget: record }))
  })
}

/** Returns all limits that apply to a request of the key: its own, then the shared ones. Budgets are last. */
export function limitsInForce(key: VirtualKey, shared: SharedLimits, now: number): MaybePromise<readonly Limit[]> {
  return chain(findShared(key, shared), (found) => limitsOfKey(key, found, now))
}

/** Limits of a deleted record that keys still refer to. */
const NO_ALLOWANCE: Allowance = { max: 0, every: '1h' }

export function limitsOfKey(key: VirtualKey, { rate, budget }: SharedOfKey, now: number): readonly Limit[] {
  const { rateLimitId, budgetId } = key
  const own = limitsOf(key)
  const limits: Limit[] = []
  const add = (kind: LimitKind, owner: string, label: string, allowance: Allowance | undefined): void => {
    if (allowance === undefined) return
    const { max, every } = allowance
    const period = periodOf(now, every)
    limits.push({ kind, label, max, every, period, owner, counter: counterName(kind, owner, every, period) })
  }
  const owner = keyOwner(key.id)
  add('requests', owner, 'The request limit of this key', own.requests)
  add('tokens', owner, 'The token limit of this key', own.tokens)
  if (rateLimitId !== undefined) {
    const record: RateLimit = rate ?? { id: rateLimitId, name: deletedName(rateLimitId), requests: NO_ALLOWANCE }
    const name = JSON.stringify(record.name)
    add('requests', sharedOwner(rateLimitId), `The shared request limit ${name}`, record.requests)
    add('tokens', sharedOwner(rateLimitId), `The shared token limit ${name}`, record.tokens)
  }
  add('budget', owner, 'The budget of this key', key.budget)
  if (budgetId !== undefined) {
    const name = JSON.stringify(budget?.name ?? deletedName(budgetId))
    add('budget', sharedOwner(budgetId), `The shared budget ${name}`, budget?.limit ?? NO_ALLOWANCE)
  }
  return limits
}

function deletedName(id: string): string {
  return `${id}, which no longer exists`
}

export function keyOwner(id: string): string {
  return `key:${id}`
}

export function sharedOwner(id: string): string {
  return `shared:${id}`
}

/** Returns the name of the counter of one window. The next window has another name, so counters are never reset. */
export function counterName(kind: LimitKind, owner: string, every: DurationCode, period: Period): string {
  return `${kind}:${owner}:${every}:${period.start}`
}

const MINUTE = 60_000
/** Maximum time by which a clock may be set back without losing amounts, in milliseconds. */
export const MAX_SETBACK_MS: number = 120 * MINUTE

/**
 * Returns the time at which a counter expires. Counters outlive their windows, so that late settlements are counted and
 * remain valid when the clock is set back. Counters of minutes expire sooner, because they are many.
 */
export function counterExpiry({ every, period }: Pick<Limit, 'every' | 'period'>): number {
  return period.end + (every === '1m' ? 15 * MINUTE : MAX_SETBACK_MS)
}
