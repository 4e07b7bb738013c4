import { periodOf, type DurationCode, type Period } from '../core/period.ts'
import { chain, type MaybePromise } from '../core/async.ts'
import { limitsOf } from './plans.ts'
import type { SharedLimits } from './shared-limits.ts'
import type { Allowance, Budget, RateLimit, VirtualKey } from './virtual-key.ts'

/** What a limit counts: requests, tokens, or nano-dollars. */
export type LimitKind = 'requests' | 'tokens' | 'budget'

/** One limit in its current window. */
export interface Limit {
  readonly kind: LimitKind
  /** The name of the limit in messages: `The budget of this key`. */
  readonly label: string
  readonly max: number
  /** The part of `max` that was spent in this window and is missing in the counter. See carried.ts. @default 0 */
  readonly carried?: number
  readonly every: DurationCode
  readonly period: Period
  readonly counter: string
  /** The key or shared record that the limit belongs to. Each window of an owner has its own counter. */
  readonly owner: string
}

/** A deleted record that keys still refer to allows nothing. */
const NOTHING: Allowance = { max: 0, every: '1h' }

/** The shared records of a key. Undefined if the key refers to none, or to a deleted one. */
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

export function limitsOfKey(key: VirtualKey, { rate, budget }: SharedOfKey, now: number): readonly Limit[] {
  const { rateLimitId, budgetId } = key
  const own = limitsOf(key)
  const owner = keyOwner(key.id)
  const limits: Limit[] = []
  addLimit(limits, { kind: 'requests', label: 'The request limit of this key', owner }, own.requests, now)
  addLimit(limits, { kind: 'tokens', label: 'The token limit of this key', owner }, own.tokens, now)
  if (rateLimitId !== undefined) addRateLimits(limits, rateLimitId, rate, now)
  addLimit(limits, { kind: 'budget', label: 'The budget of this key', owner }, key.budget, now)
  if (budgetId !== undefined) {
    const { name, limit } = budget ?? { name: gone(budgetId), limit: NOTHING }
    const label = `The shared budget ${JSON.stringify(name)}`
    addLimit(limits, { kind: 'budget', label, owner: sharedOwner(budgetId) }, limit, now)
  }
  return limits
}

function addRateLimits(limits: Limit[], id: string, found: RateLimit | undefined, now: number): void {
  const record: RateLimit = found ?? { id, name: gone(id), requests: NOTHING }
  const name = JSON.stringify(record.name)
  const owner = sharedOwner(id)
  addLimit(limits, { kind: 'requests', label: `The shared request limit ${name}`, owner }, record.requests, now)
  addLimit(limits, { kind: 'tokens', label: `The shared token limit ${name}`, owner }, record.tokens, now)
}

function gone(id: string): string {
  return `${id}, which no longer exists`
}

interface Counted {
  readonly kind: LimitKind
  readonly label: string
  readonly owner: string
}

function addLimit(
  limits: Limit[],
  { kind, label, owner }: Counted,
  allowance: Allowance | undefined,
  now: number,
): void {
  if (allowance === undefined) return
  const { max, every } = allowance
  const period = periodOf(now, every)
  limits.push({ kind, label, max, every, period, owner, counter: counterName(kind, owner, every, period) })
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

/**
 * Returns the time at which a counter expires. It outlives its window, so that late settlements are counted and a clock
 * that is set back finds it again. Windows of a minute are kept for a shorter time, because there are many.
 */
export function forgottenAt(every: DurationCode, period: Period): number {
  return period.end + (every === '1m' ? 15 * MINUTE : 120 * MINUTE)
}
