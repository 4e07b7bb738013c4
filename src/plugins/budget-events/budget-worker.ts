/**
 * Records the events of budgets and delivers them. An event is found in three steps, each of which can be repeated after
 * the end of a process: a settlement appends a check to a log, the check creates the record of the event, and the record
 * creates a pending delivery.
 */
import { isPromise, withTimeout } from '../../core/async.ts'
import { BackgroundLoop } from '../../core/background-loop.ts'
import { backoffMs, LEASE_MS } from '../../core/delivery.ts'
import { parseJson } from '../../core/json.ts'
import { mapInSlices } from '../../core/map-in-slices.ts'
import { RecentMap } from '../../core/recent-map.ts'
import type { Runtime } from '../../core/ports.ts'
import type { Level, SettledEntry, Store } from '../../core/store.ts'
import type { BudgetCaller, BudgetObserver } from '../../governance/budget-observer.ts'
import type { Limit } from '../../governance/limits.ts'
import type { BudgetEvent, Plugin } from '../../kernel/plugin.ts'
import type { EventLog } from '../../kernel/services.ts'
import { type BudgetCheck, budgetName, CHECK_LOG, compareShares, entryOf, eventOf, parseCheck } from './budget-check.ts'
import { type Delivery, deliverySchema, type EventRecord, recordSchema } from './event-records.ts'

export interface BudgetEventsOptions {
  readonly plugins: readonly Plugin[] | undefined
  /** Shares of the budgets of keys. */
  readonly budgetWarnings: readonly number[] | undefined
  readonly store: Store
  readonly runtime: Pick<Runtime, 'now' | 'after' | 'random' | 'uuid'>
  readonly log: EventLog
}

interface BudgetWorkerOptions extends BudgetEventsOptions {
  readonly listeners: readonly Plugin[]
}

const DEFAULT_SHARES: readonly number[] = [0.5, 0.8, 0.95, 1]
const MAX_KNOWN = 20_000
const MAX_OPEN_CHECKS = 10_000
const PAGE_SIZE = 200
const CONCURRENCY = 8

const WAKE_MS = 50
/** Interval at which a process looks for the checks and deliveries of others. */
const POLL_MS = 15_000
/** Interval at which budgets are compared again whose running requests may reach a share. */
const RECHECK_MS = 2_000
const REFUSAL_INTERVAL_MS = 60_000

const DELIVERY_TIMEOUT_MS = 10_000
const MAX_DELIVERY_MS = 3 * 86_400_000

const RECORD_PREFIX = 'budget-event:'
const PENDING_PREFIX = 'budget-pending:'
const CURSOR_KEY = 'budget-checks-cursor'

export class BudgetWorker implements BudgetObserver {
  readonly #options: BudgetWorkerOptions
  readonly #keyShares: readonly number[]
  /** Recorded events, with the time until which they need not be checked again. */
  readonly #known = new RecentMap<string, { readonly until: number }>(MAX_KNOWN)
  readonly #refused = new RecentMap<string, { readonly until: number }>(MAX_KNOWN)
  /** Checks whose budgets running requests may bring to a share. */
  readonly #open = new Map<string, BudgetCheck>()
  #cursor: string | undefined
  #storedCursor: string | undefined
  #hasCursor = false
  readonly #loop: BackgroundLoop
  #dropped = 0

  constructor(options: BudgetWorkerOptions) {
    this.#options = options
    this.#keyShares = options.budgetWarnings ?? DEFAULT_SHARES
    this.#loop = new BackgroundLoop({ after: options.runtime.after, run: () => this.#run(), wakeMs: WAKE_MS })
  }

  onReserved(caller: BudgetCaller, limits: readonly Limit[], levels: readonly number[]): readonly SettledEntry[] {
    const entries: SettledEntry[] = []
    for (const [index, limit] of limits.entries()) {
      if (limit.kind !== 'budget') continue
      const amount = (levels[index] ?? Infinity) + (limit.carriedAmount ?? 0)
      const shares = this.#sharesOf(limit).filter(
        (share) => amount >= share * limit.max && !this.#isKnown(`${budgetName(limit)}:${share}`),
      )
      if (shares.length > 0) entries.push(entryOf({ caller, limit, shares, isRefusal: false }, this.#now()))
    }
    return entries
  }

  onSettled(): void {
    this.#loop.wake()
  }

  onRefused(caller: BudgetCaller, limit: Limit): void {
    const name = `${budgetName(limit)}:1`
    const now = this.#now()
    if (!this.#sharesOf(limit).includes(1) || this.#isKnown(name)) return
    if (now < (this.#refused.get(name)?.until ?? -Infinity)) return
    this.#refused.set(name, { until: now + REFUSAL_INTERVAL_MS })
    const { log, ...entry } = entryOf({ caller, limit, shares: [1], isRefusal: true }, now)
    const onFailed = (cause: unknown): void => {
      this.#refused.set(name, { until: -Infinity })
      this.#options.log.failure('a refusal by a budget could not be recorded', cause)
    }
    try {
      const appended = this.#options.store.append(log, entry)
      if (isPromise(appended)) appended.then(() => this.#loop.wake(), onFailed)
      else this.#loop.wake()
    } catch (cause) {
      onFailed(cause)
    }
  }

  #sharesOf({ warnAt }: Limit): readonly number[] {
    return warnAt ?? this.#keyShares
  }

  #isKnown(name: string): boolean {
    return this.#now() < (this.#known.get(name)?.until ?? -Infinity)
  }

  #now(): number {
    return this.#options.runtime.now()
  }

  start(): void {
    this.#loop.schedule(0)
  }

  close(): Promise<void> {
    return this.#loop.close()
  }

  /** Never rejects. Resolves with the milliseconds until the next run. */
  async #run(): Promise<number> {
    try {
      await this.#check()
      const nextAt = await this.#deliverAll()
      const maxDelayMs = this.#open.size > 0 ? RECHECK_MS : POLL_MS
      return Math.max(WAKE_MS, Math.min(maxDelayMs, nextAt - this.#now()))
    } catch (cause) {
      this.#options.log.failure('budget events could not be processed; they are processed later', cause)
      return POLL_MS
    }
  }

  async #check(): Promise<void> {
    const { store } = this.#options
    if (!this.#hasCursor) {
      this.#cursor = this.#storedCursor = await store.get(CURSOR_KEY)
      this.#hasCursor = true
    }
    for (let isLast = false; !isLast;) {
      isLast = this.#open.size >= MAX_OPEN_CHECKS || (await this.#readChecks()) < PAGE_SIZE
      await this.#compare()
    }
    // A process that starts later must read the checks that are still open.
    if (this.#open.size > 0 || this.#cursor === undefined || this.#cursor === this.#storedCursor) return
    await store.set(CURSOR_KEY, this.#cursor)
    this.#storedCursor = this.#cursor
  }

  async #readChecks(): Promise<number> {
    const after = this.#cursor
    const entries = await this.#options.store.entries(CHECK_LOG, {
      limit: PAGE_SIZE,
      ...(after !== undefined && { after }),
    })
    for (const { value } of entries) {
      const check = parseCheck(value)
      if (check !== undefined) this.#addCheck(check)
    }
    this.#cursor = entries.at(-1)?.cursor ?? after
    return entries.length
  }

  #addCheck(check: BudgetCheck): void {
    const { counter, isRefusal } = check
    const earlier = this.#open.get(counter)
    const shares = Array.from(new Set([...(earlier?.shares ?? []), ...check.shares]))
    this.#open.set(counter, { ...check, shares, isRefusal: isRefusal || earlier?.isRefusal === true })
  }

  async #compare(): Promise<void> {
    const checks = Array.from(this.#open.values())
    const levels = new Map<string, Level>()
    for (let from = 0; from < checks.length; from += PAGE_SIZE) {
      const counters = checks.slice(from, from + PAGE_SIZE).map(({ counter }) => counter)
      const found = await this.#options.store.levels(counters)
      for (const [index, counter] of counters.entries()) levels.set(counter, found[index] ?? { spent: 0, held: 0 })
    }
    for (const check of checks) {
      const level = levels.get(check.counter) ?? { spent: 0, held: 0 }
      const { reached, open } = compareShares(check, level)
      for (const share of reached) await this.#record(check, share, level)
      if (open.length > 0) this.#open.set(check.counter, { ...check, shares: open, isRefusal: false })
      else this.#open.delete(check.counter)
    }
  }

  /** Creates the event unless there is one, and its delivery unless it is delivered. */
  async #record(check: BudgetCheck, share: number, { spent }: Level): Promise<void> {
    const name = `${check.name}:${share}`
    if (this.#isKnown(name)) return
    const { store, runtime } = this.#options
    const key = RECORD_PREFIX + name
    const at = this.#now()
    let value = await store.get(key)
    if (value === undefined) {
      const event = eventOf(check, { id: runtime.uuid(), share, spent, at })
      const created = JSON.stringify({ event, expiresAt: at + check.ttlMs, isDelivered: false } satisfies EventRecord)
      const isFirst = await store.swap(key, undefined, created, { ttlMs: check.ttlMs })
      value = isFirst ? created : await store.get(key)
    } else if (check.isOpen) {
      await this.#extend(key, value, check)
      value = await store.get(key)
    }
    const record = value === undefined ? undefined : recordSchema.safeParse(parseJson(value)).data
    if (record === undefined) return
    if (!record.isDelivered) {
      const delivery: Delivery = { key, event: record.event, attempts: 0, nextAt: at, done: [] }
      await store.swap(PENDING_PREFIX + record.event.id, undefined, JSON.stringify(delivery))
    }
    this.#known.set(name, { until: at + check.ttlMs / 2 })
  }

  /** A session in use must not repeat its events when their records expire. A rolling window may. */
  async #extend(key: string, value: string, { budget, ttlMs }: BudgetCheck): Promise<void> {
    const record = recordSchema.safeParse(parseJson(value)).data
    if (budget.window !== 'session' || record === undefined) return
    const extended = JSON.stringify({ ...record, expiresAt: this.#now() + ttlMs })
    await this.#options.store.swap(key, value, extended, { ttlMs })
  }

  /** Resolves with the time of the next delivery. */
  async #deliverAll(): Promise<number> {
    const { store } = this.#options
    let nextAt = Infinity
    for (let after: string | undefined; ;) {
      const keys = await store.list(PENDING_PREFIX, { limit: PAGE_SIZE, ...(after !== undefined && { after }) })
      const times = await mapInSlices(keys, CONCURRENCY, (key) =>
        this.#loop.isClosed ? Infinity : this.#deliverDue(key),
      )
      nextAt = Math.min(nextAt, ...times)
      after = keys.at(-1)
      if (keys.length < PAGE_SIZE || this.#loop.isClosed) return nextAt
    }
  }

  /** Resolves with the time of the next attempt, or with Infinity if none is needed. */
  async #deliverDue(pendingKey: string): Promise<number> {
    const { store } = this.#options
    const value = await store.get(pendingKey)
    const pending = value === undefined ? undefined : deliverySchema.safeParse(parseJson(value)).data
    if (pending === undefined) return Infinity
    const now = this.#now()
    if (pending.nextAt > now) return pending.nextAt
    const claimed = { ...pending, attempts: pending.attempts + 1, nextAt: now + LEASE_MS }
    const claimedValue = JSON.stringify(claimed)
    if (!(await store.swap(pendingKey, value, claimedValue))) return now + LEASE_MS
    const recorded = await this.#readRecord(pending.key)
    const isDone =
      recorded !== undefined && recorded.record.event.id === pending.event.id && recorded.record.isDelivered
    const done = isDone ? this.#options.listeners.map(({ name }) => name) : await this.#deliver(claimed)
    if (this.#options.listeners.every(({ name }) => done.includes(name)))
      return this.#end(pendingKey, claimedValue, pending)
    if (now - pending.event.at >= MAX_DELIVERY_MS) {
      this.#dropped += 1
      const { id } = pending.event
      const error = new Error('The event was not delivered within 3 days.')
      this.#options.log.failure('budget event dropped', error, { event_id: id, dropped: this.#dropped })
      return this.#end(pendingKey, claimedValue, pending)
    }
    const nextAt = this.#now() + backoffMs(claimed.attempts, this.#options.runtime.random())
    await store.swap(pendingKey, claimedValue, JSON.stringify({ ...claimed, nextAt, done }))
    return nextAt
  }

  async #readRecord(key: string): Promise<{ readonly value: string; readonly record: EventRecord } | undefined> {
    const value = await this.#options.store.get(key)
    const record = value === undefined ? undefined : recordSchema.safeParse(parseJson(value)).data
    return value === undefined || record === undefined ? undefined : { value, record }
  }

  /** The record first. Otherwise, a process that reads the check again would create the delivery again. */
  async #end(pendingKey: string, claimedValue: string, { key, event }: Delivery): Promise<number> {
    const { store } = this.#options
    const recorded = await this.#readRecord(key)
    if (recorded !== undefined && recorded.record.event.id === event.id && !recorded.record.isDelivered) {
      const { value, record } = recorded
      const ttlMs = Math.max(1, record.expiresAt - this.#now())
      await store.swap(key, value, JSON.stringify({ ...record, isDelivered: true }), { ttlMs })
    }
    await store.swap(pendingKey, claimedValue, undefined)
    return Infinity
  }

  /** Resolves with the names of the plugins that have received the event. */
  async #deliver({ event, done }: Delivery): Promise<readonly string[]> {
    const waiting = this.#options.listeners.filter(({ name }) => !done.includes(name))
    const delivered = await Promise.all(waiting.map((plugin) => this.#notify(plugin, event)))
    return [...done, ...waiting.filter((_, index) => delivered[index] === true).map(({ name }) => name)]
  }

  async #notify(plugin: Plugin, event: BudgetEvent): Promise<boolean> {
    const { runtime, log } = this.#options
    const createError = (): Error => new Error(`onBudget did not return within ${DELIVERY_TIMEOUT_MS} ms.`)
    try {
      const called = (async () => plugin.onBudget?.(Object.freeze({ ...event })))()
      await withTimeout(called, { ms: DELIVERY_TIMEOUT_MS, after: runtime.after, createError })
      return true
    } catch (cause) {
      log.failure('a plugin failed', cause, { plugin: plugin.name, hook: 'onBudget', event_id: event.id })
      return false
    }
  }
}
