import type { Message } from '../core/prompt.ts'
import { type DurationCode, type Period, periodOf } from '../core/store.ts'
import { UNLIMITED } from './virtual-key.ts'

/** The unit of a limit: requests, tokens, or nano-dollars. */
export type LimitKind = 'requests' | 'tokens' | 'budget'

/** The customer with its parents, the user and the session each limit a request. */
export type LevelName = 'customer' | 'parent' | 'user' | 'session'

/**
 * `calendar`: a minute, hour, day, week or month in UTC. `rolling`: the same length (a month: 30 days) before now.
 * `idle`: until `idleMs` have passed since the last request.
 */
export type LimitWindow =
  | { readonly type: 'calendar' | 'rolling'; readonly every: DurationCode }
  | { readonly type: 'idle'; readonly idleMs: number }

/** A limit in its current window, or in the current step of a rolling window. */
export interface Limit {
  readonly kind: LimitKind
  readonly level: LimitLevelName
  readonly label: string
  readonly max: number
  readonly window: LimitWindow
  readonly period: Period
  readonly counter: string
  /** When the counter may be deleted, in milliseconds since 1970. */
  readonly expiresAt: number
  readonly owner: string
  /**
   * Amount spent or held in this window that the counter lacks: that of the earlier steps of a rolling window, or what
   * was billed before a budget was added or its window changed. @default 0
   */
  readonly carriedAmount?: number
  /** The part of `carriedAmount` that running requests hold. @default 0 */
  readonly carriedHeld?: number
  /** Temporary additions that `max` contains. `until` is in milliseconds since 1970. @default none */
  readonly raises?: readonly { readonly amount: number; readonly until: number }[]
  /** Names of the models to which the limit applies. @default all models */
  readonly models?: readonly string[]
  /** Shares of a budget at which an event is recorded. @default those of the gateway */
  readonly warnAt?: readonly number[]
  /** True if the limit counts only requests with the same last turn. @default false */
  readonly isPerTurn?: boolean
  /** Returns the limit with the counter for the request, or undefined if it does not apply. @default the limit itself */
  forRequest?(request: LimitedRequest): Limit | undefined
}

/** What a limit may depend on. */
export interface LimitedRequest {
  /** Names of the models that may answer. @default unknown */
  readonly models?: readonly string[] | undefined
  /** Absent for requests without a conversation. */
  readonly messages?: readonly Message[] | undefined
}

export type LimitLevelName = LevelName | 'key' | 'shared'

export function keyOwner(id: string): string {
  return `key:${id}`
}

export function sharedOwner(id: string): string {
  return `shared:${id}`
}

/** Each calendar window has its own counter, so counters are never reset. */
export function counterName(kind: LimitKind, owner: string, every: string, { start }: Pick<Period, 'start'>): string {
  return `${kind}:${owner}:${every}:${start}`
}

const MINUTE_MS = 60_000
/** Maximum time by which the clock can be set back without losing amounts of windows longer than a minute, in ms. */
export const MAX_CLOCK_ROLLBACK_MS: number = 120 * MINUTE_MS

/** Counters outlive their windows, because settlements may be late and the clock may be set back. */
export function lateTimeOf(every: DurationCode): number {
  return every === '1m' ? 15 * MINUTE_MS : MAX_CLOCK_ROLLBACK_MS
}

/** The values of `X-RateLimit-*`. */
export interface RateStatus {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds since 1970. */
  readonly resetAt: number
}

/**
 * Reports the exceeded request or token limit, or else the request limit with the fewest remaining requests. Limits of
 * parents are not reported, because other customers share them.
 */
export function rateStatus(
  limits: readonly Limit[],
  levels: readonly number[],
  { now, exceeded }: { readonly now: number; readonly exceeded: Limit | undefined },
): RateStatus {
  let reported: Limit | undefined
  let remaining = Infinity
  let index = 0
  for (const limit of limits) {
    const limitRemaining = Math.max(0, limit.max - (limit.carriedAmount ?? 0) - (levels[index++] ?? 0))
    if (limit.level === 'parent') continue
    const isExceeded = limit === exceeded && limit.kind !== 'budget'
    if (!isExceeded && (limit.kind !== 'requests' || limitRemaining >= remaining)) continue
    reported = limit
    remaining = limitRemaining
    if (isExceeded) break
  }
  if (reported === undefined) return { limit: UNLIMITED, remaining: UNLIMITED, resetAt: periodOf(now, '1h').end }
  return { limit: reported.max, remaining, resetAt: reported.period.end }
}
