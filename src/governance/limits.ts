import { chain, type MaybePromise } from '../core/async.ts'
import { type FailureDetails, GatewayError } from '../core/errors.ts'
import { formatUsd, toNanoUsd } from '../core/money.ts'
import { type DurationCode, type Period, periodOf } from '../core/store.ts'
import type { SharedLimits } from './stored-records.ts'
import {
  type Allowance,
  type Budget,
  effectiveRateLimits,
  type RateLimit,
  UNLIMITED,
  type VirtualKey,
} from './virtual-key.ts'

/** The unit of a limit: requests, tokens, or nano-dollars. */
export type LimitKind = 'requests' | 'tokens' | 'budget'

export interface Limit {
  readonly kind: LimitKind
  readonly label: string
  readonly max: number
  readonly every: DurationCode
  readonly period: Period
  readonly counter: string
  readonly owner: string
  /** Amount spent or held in this window that the counter lacks. @default 0 */
  readonly carriedAmount?: number
}

interface SharedRecords {
  readonly rateLimit: RateLimit | undefined
  readonly budget: Budget | undefined
}

const NO_SHARED_RECORDS: SharedRecords = { rateLimit: undefined, budget: undefined }

function findShared({ rateLimitId, budgetId }: VirtualKey, shared: SharedLimits): MaybePromise<SharedRecords> {
  if (rateLimitId === undefined && budgetId === undefined) return NO_SHARED_RECORDS
  const foundRateLimit = rateLimitId === undefined ? undefined : shared.rateLimits.find(rateLimitId)
  return chain(foundRateLimit, (rateLimit) => {
    const budget = budgetId === undefined ? undefined : shared.budgets.find(budgetId)
    return chain(budget, (record) => ({ rateLimit, budget: record }))
  })
}

export function currentLimits(key: VirtualKey, shared: SharedLimits, now: number): MaybePromise<readonly Limit[]> {
  return chain(findShared(key, shared), (records) => limitsOfKey(key, records, now))
}

/** The limit of a key whose shared record was deleted. */
const NO_ALLOWANCE: Allowance = { max: 0, every: '1h' }

function limitsOfKey(key: VirtualKey, { rateLimit: rate, budget }: SharedRecords, now: number): readonly Limit[] {
  const { rateLimitId, budgetId } = key
  const ownLimits = effectiveRateLimits(key)
  const limits: Limit[] = []
  const add = (kind: LimitKind, owner: string, label: string, allowance: Allowance | undefined): void => {
    if (allowance === undefined) return
    const { max, every } = allowance
    const period = periodOf(now, every)
    limits.push({ kind, label, max, every, period, owner, counter: counterName(kind, owner, every, period) })
  }
  const owner = keyOwner(key.id)
  add('requests', owner, 'The request limit of this key', ownLimits.requests)
  add('tokens', owner, 'The token limit of this key', ownLimits.tokens)
  if (rateLimitId !== undefined) {
    const record: RateLimit = rate ?? { id: rateLimitId, name: rateLimitId, requests: NO_ALLOWANCE }
    const name = quotedName(rate, rateLimitId)
    add('requests', sharedOwner(rateLimitId), `The shared request limit ${name}`, record.requests)
    add('tokens', sharedOwner(rateLimitId), `The shared token limit ${name}`, record.tokens)
  }
  add('budget', owner, 'The budget of this key', key.budget)
  if (budgetId !== undefined) {
    const name = quotedName(budget, budgetId)
    add('budget', sharedOwner(budgetId), `The shared budget ${name}`, budget?.limit ?? NO_ALLOWANCE)
  }
  return limits
}

function quotedName(record: { readonly name: string } | undefined, id: string): string {
  return record === undefined ? `${JSON.stringify(id)} (which no longer exists)` : JSON.stringify(record.name)
}

export function keyOwner(id: string): string {
  return `key:${id}`
}

export function sharedOwner(id: string): string {
  return `shared:${id}`
}

/** Each window has its own counter, so counters are never reset. */
export function counterName(kind: LimitKind, owner: string, every: DurationCode, period: Period): string {
  return `${kind}:${owner}:${every}:${period.start}`
}

const MINUTE_MS = 60_000
/** Maximum time by which the clock can be set back without losing amounts of windows longer than a minute, in ms. */
export const MAX_CLOCK_ROLLBACK_MS: number = 120 * MINUTE_MS

/** Counters outlive their windows, because settlements may be late and the clock may be set back. */
export function counterExpiry({ every, period }: Pick<Limit, 'every' | 'period'>): number {
  return period.end + (every === '1m' ? 15 * MINUTE_MS : MAX_CLOCK_ROLLBACK_MS)
}

/** The values of `X-RateLimit-*`. */
export interface RateStatus {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds since 1970. */
  readonly resetAt: number
}

/** Reports the exceeded request or token limit, or else the request limit with the fewest remaining requests. */
export function rateStatus(
  limits: readonly Limit[],
  levels: readonly number[],
  { now, exceeded }: { readonly now: number; readonly exceeded: Limit | undefined },
): RateStatus {
  let reported: Limit | undefined
  let remaining = Infinity
  let index = 0
  for (const limit of limits) {
    const limitRemaining = Math.max(0, limit.max - (levels[index++] ?? 0))
    const isExceeded = limit === exceeded && limit.kind !== 'budget'
    if (!isExceeded && (limit.kind !== 'requests' || limitRemaining >= remaining)) continue
    reported = limit
    remaining = limitRemaining
    if (isExceeded) break
  }
  if (reported === undefined) return { limit: UNLIMITED, remaining: UNLIMITED, resetAt: periodOf(now, '1h').end }
  return { limit: reported.max, remaining, resetAt: reported.period.end }
}

const WINDOW_NAMES: Readonly<Record<DurationCode, string>> = {
  '1m': 'minute',
  '1h': 'hour',
  '1d': 'day',
  '1w': 'week',
  '1M': 'month',
}

interface LimitErrorContext {
  readonly rate: RateStatus
  readonly now: number
  readonly tokens: number
  /** False if `tokens` is an upper bound, and the prompt may fit in a later window. @default true */
  readonly isCounted?: boolean
}

/** The message does not contain the amount used, because other keys may share the limit. */
export function limitError(limit: Limit, { rate, now, tokens, isCounted = true }: LimitErrorContext): GatewayError {
  const { kind, label, max } = limit
  const retryAt = new Date(limit.period.end).toISOString()
  const window = WINDOW_NAMES[limit.every]
  const zeroRemedy = max === 0 ? 'Raise the limit, or assign another limit to the key.' : undefined
  if (kind === 'budget') {
    const remedy = zeroRemedy ?? `Lower max_tokens, retry after ${retryAt}, or raise the limit.`
    return new GatewayError(
      'budget-exceeded',
      `${label} is exceeded: this request could cost more than the amount that remains of ${formatUsd(toNanoUsd(max))} per ${window}. ${remedy}`,
      { rate },
    )
  }
  const isTooLarge = kind === 'tokens' && isCounted && tokens > max
  const details: FailureDetails = {
    code: 'rate_limit_exceeded',
    retryAfterSeconds: Math.max(1, Math.ceil((limit.period.end - now) / 1000)),
    rate,
    // A later window would reject the request as well.
    ...((max === 0 || isTooLarge) && { advice: { shouldRetry: 'false' } }),
  }
  const text =
    kind === 'requests' ? `${max} requests` : `this prompt has up to ${tokens} tokens, more than remain of the ${max}`
  const remedy = zeroRemedy ?? (isTooLarge ? 'Send a shorter prompt.' : `Retry after ${retryAt}.`)
  return new GatewayError('rate-limited', `${label} is reached: ${text} per ${window}. ${remedy}`, details)
}

export interface KeyWindows {
  /** Budgets are last. */
  readonly limits: readonly Limit[]
  readonly tallies: readonly TallyTarget[]
}

interface CachedWindows extends SharedRecords {
  readonly windows: KeyWindows
  /** Milliseconds since 1970. `until` is exclusive. */
  readonly from: number
  readonly until: number
}

export const CARRY_OVER_CACHE_MS = 60_000

/** Limits with their carried amounts, which were billed or held before the budget was added or its window changed. */
export interface CarriedLimits {
  readonly limits: readonly Limit[]
  /** False while requests that began in another window are running, because their settlements change the amounts. */
  readonly isFinal: boolean
}

export type CarryOver = (limits: readonly Limit[], now: number) => MaybePromise<CarriedLimits>

/** Records are compared by identity, because a change creates a new object. */
export function createKeyWindows(
  shared: SharedLimits,
  carryOver: CarryOver,
): (key: VirtualKey, at: number) => MaybePromise<KeyWindows> {
  const cache = new WeakMap<VirtualKey, CachedWindows>()
  return (key, at) =>
    chain(findShared(key, shared), (records) => {
      const cached = cache.get(key)
      const isValid = cached !== undefined && at >= cached.from && at < cached.until
      if (isValid && cached.rateLimit === records.rateLimit && cached.budget === records.budget) return cached.windows
      return chain(carryOver(limitsOfKey(key, records, at), at), ({ limits, isFinal }) => {
        // The start of each day, week and month is also the start of an hour.
        const periods = [periodOf(at, '1h'), ...limits.map(({ period }) => period)]
        const from = Math.max(...periods.map(({ start }) => start))
        const until = Math.min(isFinal ? at + CARRY_OVER_CACHE_MS : at, ...periods.map(({ end }) => end))
        const windows = { limits, tallies: tallyTargets(key, at) }
        cache.set(key, { ...records, windows, from, until })
        return windows
      })
    })
}

const DAY_MS = 86_400_000
const DAILY_RETENTION_MS = 400 * DAY_MS
const SHORT_RETENTION_MS = 2 * DAY_MS
/** The longest window that needs the tallies of a shared budget is a month. */
const BILLED_RETENTION_MS = 32 * DAY_MS

export interface TallyTarget {
  readonly name: string
  /** `total`: all amounts. `models`: all amounts by model. `billed`: the billed amount only, for a shared budget. */
  readonly kind: 'total' | 'models' | 'billed'
  readonly hourField: string | undefined
  readonly expiresAt: number
}

function tallyTargets(key: VirtualKey, at: number): readonly TallyTarget[] {
  const every = reportWindow(key)
  const codes: readonly DurationCode[] = every === '1h' || every === '1m' ? ['1d', every] : ['1d']
  const targets = codes.flatMap((code): readonly TallyTarget[] => {
    const { start, end } = periodOf(at, code)
    const expiresAt = end + (code === '1d' ? DAILY_RETENTION_MS : SHORT_RETENTION_MS)
    const hourField = code === '1d' ? hourFieldName(at) : undefined
    return [
      { name: totalTallyName(key.id, code, start), kind: 'total', hourField, expiresAt },
      { name: modelTallyName(key.id, code, start), kind: 'models', hourField, expiresAt },
    ]
  })
  if (key.budgetId === undefined) return targets
  const { start, end } = periodOf(at, '1d')
  const name = billedTallyName(sharedOwner(key.budgetId), start)
  return [...targets, { name, kind: 'billed', hourField: hourFieldName(at), expiresAt: end + BILLED_RETENTION_MS }]
}

export function reportWindow(key: VirtualKey): DurationCode {
  return key.budget?.every ?? '1M'
}

export function billedTallyName(owner: string, day: number): string {
  const prefix = keyOwner('')
  return owner.startsWith(prefix) ? totalTallyName(owner.slice(prefix.length), '1d', day) : `billed:${owner}:1d:${day}`
}

export function hourFieldName(at: number): string {
  return `billed@${new Date(at).getUTCHours()}`
}

export function totalTallyName(id: string, code: DurationCode, start: number): string {
  return `usage:${id}:${code}:${start}`
}

export function modelTallyName(id: string, code: DurationCode, start: number): string {
  return `usage-by-model:${id}:${code}:${start}`
}
