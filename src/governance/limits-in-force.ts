import { periodOf, type DurationCode, type Period } from '../core/period.ts'
import { limitsOf } from './plans.ts'
import type { SharedLimits } from './shared-limits.ts'
import type { Allowance, RateLimit, VirtualKey } from './virtual-key.ts'

/** What a limit counts: requests, tokens, or nano-dollars. */
export type LimitKind = 'requests' | 'tokens' | 'budget'

/** One limit in its present window. */
export interface Limit {
  readonly kind: LimitKind
  /** What messages call it: `The budget of this key`. */
  readonly label: string
  readonly max: number
  readonly every: DurationCode
  readonly period: Period
  readonly counter: string
  /** Whose limit it is: every window of one owner has a counter of its own. */
  readonly owner: string
}

/** A record that was deleted while keys still refer to it leaves nothing to use. */
const NOTHING: Allowance = { max: 0, every: '1h' }

/** All limits that a request of this key must fit in: its own, then the shared ones; budgets last. */
export async function limitsInForce(key: VirtualKey, shared: SharedLimits, now: number): Promise<readonly Limit[]> {
  const own = limitsOf(key)
  const owner = keyOwner(key.id)
  return [
    ...limit({ kind: 'requests', label: 'The request limit of this key', owner }, own.requests, now),
    ...limit({ kind: 'tokens', label: 'The token limit of this key', owner }, own.tokens, now),
    ...(key.rateLimitId === undefined ? [] : await sharedRateLimits(key.rateLimitId, shared, now)),
    ...limit({ kind: 'budget', label: 'The budget of this key', owner }, key.budget, now),
    ...(key.budgetId === undefined ? [] : await sharedBudget(key.budgetId, shared, now)),
  ]
}

async function sharedRateLimits(id: string, shared: SharedLimits, now: number): Promise<readonly Limit[]> {
  const record: RateLimit = (await shared.rateLimits.find(id)) ?? { id, name: gone(id), requests: NOTHING }
  const name = JSON.stringify(record.name)
  const owner = sharedOwner(id)
  return [
    ...limit({ kind: 'requests', label: `The shared request limit ${name}`, owner }, record.requests, now),
    ...limit({ kind: 'tokens', label: `The shared token limit ${name}`, owner }, record.tokens, now),
  ]
}

async function sharedBudget(id: string, shared: SharedLimits, now: number): Promise<readonly Limit[]> {
  const record = (await shared.budgets.find(id)) ?? { name: gone(id), limit: NOTHING }
  const label = `The shared budget ${JSON.stringify(record.name)}`
  return limit({ kind: 'budget', label, owner: sharedOwner(id) }, record.limit, now)
}

function gone(id: string): string {
  return `${id}, which no longer exists`
}

interface Counted {
  readonly kind: LimitKind
  readonly label: string
  readonly owner: string
}

function limit({ kind, label, owner }: Counted, allowance: Allowance | undefined, now: number): readonly Limit[] {
  if (allowance === undefined) return []
  const { max, every } = allowance
  const period = periodOf(now, every)
  return [{ kind, label, max, every, period, owner, counter: counterName(kind, owner, every, period) }]
}

export function keyOwner(id: string): string {
  return `key:${id}`
}

export function sharedOwner(id: string): string {
  return `shared:${id}`
}

/** The counter of one window: the next window has another name, so nothing is ever reset. */
export function counterName(kind: LimitKind, owner: string, every: DurationCode, period: Period): string {
  return `${kind}:${owner}:${every}:${period.start}`
}

const MINUTE = 60_000

/**
 * When a counter may be forgotten. It outlives its window, so that a clock that is set back finds it again and late
 * settlements are still counted; minutes pass too often for a long memory.
 */
export function forgottenAt(every: DurationCode, period: Period): number {
  return period.end + (every === '1m' ? 15 * MINUTE : 120 * MINUTE)
}
