/** The limits and tallies of a caller in the windows that contain one moment. */
import { chain, type MaybePromise } from '../core/async.ts'
import { type DurationCode, periodOf } from '../core/store.ts'
import { counterName, keyOwner, type LevelName, lateTimeOf, type Limit, type LimitKind, sharedOwner } from './limits.ts'
import type { SharedLimits } from './stored-records.ts'
import { DAILY_RETENTION_MS, rowTallyName } from './usage-rows.ts'
import { type Allowance, type Budget, effectiveRateLimits, type RateLimit, type VirtualKey } from './virtual-key.ts'

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
  const add = (
    kind: LimitKind,
    { owner, label }: { readonly owner: string; readonly label: string },
    allowance: Allowance | undefined,
  ): void => {
    if (allowance === undefined) return
    const { max, every } = allowance
    const period = periodOf(now, every)
    const counter = counterName(kind, owner, every, period)
    const level = owner.startsWith('shared:') ? 'shared' : 'key'
    const expiresAt = period.end + lateTimeOf(every)
    limits.push({ kind, level, label, max, window: { type: 'calendar', every }, period, owner, counter, expiresAt })
  }
  const owner = keyOwner(key.id)
  add('requests', { owner, label: 'The request limit of this key' }, ownLimits.requests)
  add('tokens', { owner, label: 'The token limit of this key' }, ownLimits.tokens)
  if (rateLimitId !== undefined) {
    const record: RateLimit = rate ?? { id: rateLimitId, name: rateLimitId, requests: NO_ALLOWANCE }
    const name = quotedName(rate, rateLimitId)
    const shared = sharedOwner(rateLimitId)
    add('requests', { owner: shared, label: `The shared request limit ${name}` }, record.requests)
    add('tokens', { owner: shared, label: `The shared token limit ${name}` }, record.tokens)
  }
  add('budget', { owner, label: 'The budget of this key' }, key.budget)
  if (budgetId !== undefined) {
    const label = `The shared budget ${quotedName(budget, budgetId)}`
    add('budget', { owner: sharedOwner(budgetId), label }, budget?.limit ?? NO_ALLOWANCE)
  }
  return limits
}

function quotedName(record: { readonly name: string } | undefined, id: string): string {
  return record === undefined ? `${JSON.stringify(id)} (which no longer exists)` : JSON.stringify(record.name)
}

/** True for a limit whose counter may lack amounts of its window. */
export function needsCarryOver({ kind, window, models }: Limit): boolean {
  return window.type === 'rolling' || (kind === 'budget' && window.type === 'calendar' && models === undefined)
}

export interface Windows {
  /** Budgets are last. */
  readonly limits: readonly Limit[]
  readonly tallies: readonly TallyTarget[]
}

export interface CachedWindows {
  readonly windows: Windows
  /** Milliseconds since 1970. `until` is exclusive. */
  readonly from: number
  readonly until: number
}

export const CARRY_OVER_CACHE_MS = 60_000

/** Limits with their carried amounts. */
export interface CarriedLimits {
  readonly limits: readonly Limit[]
  /** False while requests that began in another window are running, because their settlements change the amounts. */
  readonly isFinal: boolean
}

export type CarryOver = (limits: readonly Limit[], now: number) => MaybePromise<CarriedLimits>

/** A level with its windows. Its code is loaded with the first request that has a context. */
export interface LevelWindows {
  readonly name: LevelName
  windowsAt(at: number, context: LevelContext): MaybePromise<Windows>
  /** Adds the windows of all levels of a caller to those of its key. */
  addAll(levels: readonly LevelWindows[], own: Windows, at: number, context: LevelContext): MaybePromise<Windows>
}

interface LimitedKey {
  readonly key: VirtualKey
  readonly levels: readonly LevelWindows[]
}

type WindowsOf = (caller: LimitedKey, at: number) => MaybePromise<Windows>

export interface LevelContext {
  readonly carryOver: CarryOver
  /** A counter that ends when a session is idle must not end before a running request. */
  readonly maxRequestMs: number
}

/** Records are compared by identity, because a change creates a new object. */
export function createWindows(shared: SharedLimits, context: LevelContext): WindowsOf {
  const windowsOfKey = createKeyWindows(shared, context.carryOver)
  return ({ key, levels }, at) => {
    const [first] = levels
    const ofKey = windowsOfKey(key, at, first?.name === 'customer')
    return first === undefined ? ofKey : chain(ofKey, (own) => first.addAll(levels, own, at, context))
  }
}

interface CachedKeyWindows extends CachedWindows, SharedRecords {
  /** For requests of a customer. */
  readonly customerWindows: Windows
}

function createKeyWindows(
  shared: SharedLimits,
  carryOver: CarryOver,
): (key: VirtualKey, at: number, isOfCustomer: boolean) => MaybePromise<Windows> {
  const cache = new WeakMap<VirtualKey, CachedKeyWindows>()
  return (key, at, isOfCustomer) =>
    chain(findShared(key, shared), (records) => {
      const cached = cache.get(key)
      const isValid = cached !== undefined && at >= cached.from && at < cached.until
      if (isValid && cached.rateLimit === records.rateLimit && cached.budget === records.budget)
        return isOfCustomer ? cached.customerWindows : cached.windows
      return chain(carryOver(limitsOfKey(key, records, at), at), (carried) => {
        const { limits } = carried
        const windows = { limits, tallies: tallyTargets(key, at, false) }
        const customerWindows = { limits, tallies: tallyTargets(key, at, true) }
        cache.set(key, { ...records, windows, customerWindows, ...validityOf(carried, at) })
        return isOfCustomer ? customerWindows : windows
      })
    })
}

/** The start of each day, week and month is also the start of an hour. */
export function validityOf(
  { limits, isFinal }: CarriedLimits,
  at: number,
): { readonly from: number; readonly until: number } {
  const periods = [periodOf(at, '1h'), ...limits.map(({ period }) => period)]
  return {
    from: Math.max(...periods.map(({ start }) => start)),
    until: Math.min(isFinal ? at + CARRY_OVER_CACHE_MS : at, ...periods.map(({ end }) => end)),
  }
}

const DAY_MS = 86_400_000
const SHORT_RETENTION_MS = 2 * DAY_MS
/** The longest window that needs the tallies of a shared budget is a month. */
const BILLED_RETENTION_MS = 32 * DAY_MS

/**
 * `total`: all amounts. `models`: all amounts by model. `billed`: the billed amount only, for carried amounts. `rows`: all
 * amounts by row, for usage reports.
 */
export type TallyTarget = NamedTallyTarget | RowTallyTarget

interface NamedTallyTarget {
  readonly kind: 'total' | 'models' | 'billed'
  readonly name: string
  readonly hourField: string | undefined
  readonly expiresAt: number
}

interface RowTallyTarget {
  readonly kind: 'rows'
  readonly owner: string
  /** Start of the day. */
  readonly day: number
  /** Of rows without a user, session and tags. */
  readonly name: string
  readonly hourField: undefined
  readonly expiresAt: number
}

/**
 * Rows are kept for the paying customer, or for the key if there is none. Requests of a customer are counted for their key
 * by model, so that its usage contains them.
 */
function tallyTargets(key: VirtualKey, at: number, isOfCustomer: boolean): readonly TallyTarget[] {
  const every = reportWindow(key)
  const codes: readonly DurationCode[] = every === '1h' || every === '1m' ? ['1d', every] : ['1d']
  const targets = codes.flatMap((code): readonly TallyTarget[] => {
    const { start, end } = periodOf(at, code)
    const expiresAt = end + (code === '1d' ? DAILY_RETENTION_MS : SHORT_RETENTION_MS)
    const hourField = code === '1d' ? hourFieldName(at) : undefined
    const total: TallyTarget = { name: totalTallyName(key.id, code, start), kind: 'total', hourField, expiresAt }
    const usesRows = code === '1d' && !isOfCustomer
    if (usesRows) return [total, rowTarget(keyOwner(key.id), at)]
    return [total, { name: modelTallyName(key.id, code, start), kind: 'models', hourField, expiresAt }]
  })
  if (key.budgetId === undefined) return targets
  return [...targets, billedTarget(sharedOwner(key.budgetId), at, BILLED_RETENTION_MS)]
}

export function rowTarget(owner: string, at: number): RowTallyTarget {
  const { start: day, end } = periodOf(at, '1d')
  const name = rowTallyName(owner, day, 0)
  return { kind: 'rows', owner, day, name, hourField: undefined, expiresAt: end + DAILY_RETENTION_MS }
}

export function billedTarget(owner: string, at: number, retentionMs: number): TallyTarget {
  const { start, end } = periodOf(at, '1d')
  return {
    name: billedTallyName(owner, start),
    kind: 'billed',
    hourField: hourFieldName(at),
    expiresAt: end + retentionMs,
  }
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
