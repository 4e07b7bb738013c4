/** The limits of customers, users and sessions in their windows. Loaded with the first request that has a context. */
import { type DurationCode, periodOf } from '../core/store.ts'
import { escapeId, type LimitLevel } from './caller.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { glob } from '../core/glob.ts'
import { digestLastTurn } from './last-turn.ts'
import {
  counterName,
  lateTimeOf,
  type LevelName,
  type Limit,
  type LimitedRequest,
  type LimitKind,
  type LimitWindow,
} from './limits.ts'
import {
  billedTarget,
  type CachedWindows,
  type LevelContext,
  type LevelWindows,
  rowTarget,
  type TallyTarget,
  validityOf,
  type Windows,
} from './windows.ts'
import { DAILY_RETENTION_MS } from './usage-rows.ts'

/** A limit of a level. A request that it does not cover is refused. */
export interface LevelLimit {
  readonly kind: LimitKind
  /** In requests, tokens, or nano-dollars. */
  readonly max: number
  readonly window: LimitWindow
  /** Applies only to models of these names. `*` matches any characters. @default all models */
  readonly models?: readonly string[]
  /** Counts only requests with the same last turn. @default false */
  readonly isPerTurn?: boolean
  /** Temporary additions to `max`. */
  readonly raises?: readonly { readonly amount: number; readonly until: number }[]
}

const KIND_NAMES: Readonly<Record<LimitKind, string>> = {
  requests: 'request limit',
  tokens: 'token limit',
  budget: 'budget',
}

const LEVEL_NAMES: Readonly<Record<LevelName, string>> = {
  customer: 'of this customer',
  parent: 'of a parent of this customer',
  user: 'of this user',
  session: 'of this session',
}

const SECOND_MS = 1000
const MINUTE_MS = 60 * SECOND_MS
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

/**
 * A rolling window is the sum of the counters of its steps. An amount leaves the window with its step, so it counts for
 * up to one step longer than the window.
 */
export const ROLLING_STEPS: Readonly<Record<DurationCode, { readonly stepMs: number; readonly count: number }>> = {
  '1m': { stepMs: 5 * SECOND_MS, count: 12 },
  '1h': { stepMs: 5 * MINUTE_MS, count: 12 },
  '1d': { stepMs: HOUR_MS, count: 24 },
  '1w': { stepMs: 6 * HOUR_MS, count: 28 },
  '1M': { stepMs: DAY_MS, count: 30 },
}

/** A level that a customer, a parent, a user or a session has. */
export class ContextLevel implements LimitLevel {
  readonly name: LevelName
  readonly owner: string
  readonly warnAt: readonly number[]
  readonly #limits: readonly LevelLimit[]
  #cached: CachedWindows | undefined = undefined

  constructor({ name, owner, limits, warnAt = [] }: LevelParts) {
    this.name = name
    this.owner = owner
    this.warnAt = warnAt
    this.#limits = limits
  }

  /** The windows of a session end later with each request, so they are not cached. */
  windowsAt(at: number, { carryOver, maxRequestMs }: LevelContext): MaybePromise<Windows> {
    if (this.name === 'session') return { limits: this.limitsAt(at, maxRequestMs), tallies: [] }
    const cached = this.#cached
    if (cached !== undefined && at >= cached.from && at < cached.until) return cached.windows
    return chain(carryOver(this.limitsAt(at, maxRequestMs), at), (carried) => {
      const billed = billedTarget(this.owner, at, DAILY_RETENTION_MS)
      const tallies = this.name === 'customer' ? [billed, rowTarget(this.owner, at)] : [billed]
      const windows = { limits: carried.limits, tallies }
      const { from, until } = validityOf(carried, at)
      this.#cached = { windows, from, until: Math.min(until, this.changesAt(at)) }
      return windows
    })
  }

  addAll(levels: readonly LevelWindows[], own: Windows, at: number, context: LevelContext): MaybePromise<Windows> {
    const all: Windows[] = [own]
    for (const [index, level] of levels.entries()) {
      const found = level.windowsAt(at, context)
      if (isPromise(found)) {
        const rest = levels.slice(index + 1)
        return found.then((windows) => this.addAll(rest, joinWindows([...all, windows]), at, context))
      }
      all.push(found)
    }
    return joinWindows(all)
  }

  get limitCount(): number {
    return this.#limits.length
  }

  get hasBudget(): boolean {
    return this.#limits.some(({ kind }) => kind === 'budget')
  }

  limitsAt(now: number, maxRequestMs: number): readonly Limit[] {
    return this.#limits.map((limit) => limitOf(this, limit, now, maxRequestMs))
  }

  changesAt(now: number): number {
    const ends = this.#limits.flatMap(({ raises = [] }) => raises.map(({ until }) => until))
    return Math.min(Infinity, ...ends.filter((end) => end > now))
  }
}

interface LevelParts extends Pick<ContextLevel, 'name' | 'owner'> {
  readonly limits: readonly LevelLimit[]
  readonly warnAt?: readonly number[]
}

/** Without spreads, because each request has new limits of its session. */
function limitOf({ name, owner, warnAt }: LimitLevel, limit: LevelLimit, now: number, maxRequestMs: number): Limit {
  const { kind, max, window, models, isPerTurn, raises } = limit
  const { every, period, expiresAt } = periodIn(window, now, maxRequestMs)
  const label = isPerTurn === true ? 'The loop guard of this session' : `The ${KIND_NAMES[kind]} ${LEVEL_NAMES[name]}`
  const counter = counterName(kind, owner, isPerTurn === true ? 'turn' : every, period)
  const ofLevel = { kind, level: name, label, max, window, owner, warnAt, period, counter, expiresAt }
  if (isPerTurn === true) return { ...ofLevel, isPerTurn, forRequest: forTurn }
  const raised = raises === undefined ? ofLevel : withRaises(ofLevel, raises, now)
  if (models === undefined) return raised
  return {
    ...raised,
    label: `${label} for ${models.join(', ')}`,
    // Limits of the same kind and window for different models have different counters.
    counter: counterName(kind, owner, `${every}-${escapeId(models.join(' '))}`, period),
    models,
    forRequest: forModels(models),
  }
}

function withRaises(limit: Limit, raises: NonNullable<LevelLimit['raises']>, now: number): Limit {
  const current = raises.filter(({ until }) => now < until)
  if (current.length === 0) return limit
  const raised = current.reduce((sum, { amount }) => sum + amount, limit.max)
  return { ...limit, raises: current, max: Math.min(raised, Number.MAX_SAFE_INTEGER) }
}

/** @returns `every`: the name of the window in counters. */
function periodIn(
  window: LimitWindow,
  now: number,
  maxRequestMs: number,
): Pick<Limit, 'period' | 'expiresAt'> & { readonly every: string } {
  if (window.type === 'idle') {
    const end = now + window.idleMs
    return { every: 'idle', period: { start: 0, end }, expiresAt: end + maxRequestMs }
  }
  const { every } = window
  if (window.type === 'calendar') {
    const period = periodOf(now, every)
    return { every, period, expiresAt: period.end + lateTimeOf(every) }
  }
  const { stepMs, count } = ROLLING_STEPS[every]
  const start = Math.floor(now / stepMs) * stepMs
  const end = start + stepMs
  return { every: `rolling-${every}`, period: { start, end }, expiresAt: end + count * stepMs + lateTimeOf(every) }
}

/** Budgets stay last. */
function joinWindows(all: readonly Windows[]): Windows {
  const limits: Limit[] = []
  const budgets: Limit[] = []
  const tallies: TallyTarget[] = []
  for (const windows of all) {
    for (const limit of windows.limits) (limit.kind === 'budget' ? budgets : limits).push(limit)
    tallies.push(...windows.tallies)
  }
  return { limits: limits.concat(budgets), tallies }
}

function forModels(patterns: readonly string[]): NonNullable<Limit['forRequest']> {
  return function forRequest(this: Limit, { models }) {
    return models?.some((name) => patterns.some((pattern) => glob(pattern, name))) === true ? this : undefined
  }
}

function forTurn(this: Limit, { messages }: LimitedRequest): Limit | undefined {
  return messages && { ...this, counter: this.counter.replace(/:\d+$/, `-${digestLastTurn(messages)}$&`) }
}

/** The name of a window in events and summaries. */
export type WindowName = DurationCode | `rolling ${DurationCode}` | 'session'

export function windowName(window: LimitWindow): WindowName {
  if (window.type === 'idle') return 'session'
  return window.type === 'rolling' ? `rolling ${window.every}` : window.every
}

/** Returns the start of the earliest step of a rolling window. */
export function windowStart({ window, period: { start, end } }: Pick<Limit, 'window' | 'period'>): number {
  if (window.type !== 'rolling') return start
  const { stepMs, count } = ROLLING_STEPS[window.every]
  return end - stepMs * (count + 1)
}

/** The counters of the earlier steps of a rolling window, which end with their start. */
export function earlierSteps({ counter, window, period }: Limit): readonly string[] {
  if (window.type !== 'rolling') return []
  const { stepMs, count } = ROLLING_STEPS[window.every]
  const prefix = counter.slice(0, counter.lastIndexOf(':') + 1)
  return Array.from({ length: count }, (_, index) => `${prefix}${period.start - (index + 1) * stepMs}`)
}
