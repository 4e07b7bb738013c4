import { createHash, randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { LEASE_MS } from '../../../src/core/delivery.ts'
import type { Level, Store } from '../../../src/core/store.ts'
import { billingEvents, type SendBillingEvents } from '../../../src/billing.ts'
import { createGateway, type Reconciliation } from '../../../src/index.ts'
import { createFleet, exitOf } from './fleet.ts'
import { type FleetReport, gatewayOptions, MODEL, PATIENT } from './jobs.ts'
import { openStore, type StorePlace } from './open-store.ts'
import { reportEvents, spendOptions } from './spend.ts'

/** Usage of one key by a fleet. */
export interface FleetUsage {
  /** Number of responses of all processes by status. */
  readonly statuses: Readonly<Record<string, number>>
  /** Number of requests in the usage report. */
  readonly requests: number
  readonly billedUsd: number
  /** Billed amount of one request, measured with a separate gateway. */
  readonly oneUsd: number
}

export interface AskOptions {
  readonly place: StorePlace
  readonly processes: number
  /** Total requests of all processes. */
  readonly count: number
  readonly requestLimit: number
  /** Number of requests that the budget covers. */
  readonly paidFor: number
}

/** Sends concurrent requests with one key from several processes. */
export async function askFromFleet({
  place,
  processes,
  count,
  requestLimit,
  paidFor,
}: AskOptions): Promise<FleetUsage> {
  const oneUsd = await billOfOne()
  const { store, close } = await openStore(place)
  const fleet = await createFleet()
  try {
    const gateway = createGateway({ ...gatewayOptions(store), ...PATIENT })
    const { id, value: secret } = await gateway.keys.create({
      name: 'fleet',
      rate_limit_requests: requestLimit,
      rate_limit_reset_duration: '1M',
      budget_limit_cents: Math.ceil(paidFor * oneUsd * 100),
      budget_reset_duration: '1M',
    })
    const statuses: Record<string, number> = {}
    const job = { type: 'ask', place, count: count / processes, atOnce: 50, secret } as const
    const children = Array.from({ length: processes }, () =>
      fleet.start(job, (report) => {
        if (report.type !== 'statuses') return
        for (const [status, times] of Object.entries(report.statuses))
          statuses[status] = (statuses[status] ?? 0) + times
      }),
    )
    await Promise.all(children.map(exitOf))
    const { requests, cost } = await gateway.keys.usage(id)
    await gateway.close()
    return { statuses, requests, billedUsd: cost.billedUsd, oneUsd }
  } finally {
    await fleet.close()
    await close()
  }
}

/** Returns the billed amount of one request. */
async function billOfOne(): Promise<number> {
  const { store } = await openStore({ engine: 'memory', location: '', name: '' })
  const gateway = createGateway({ ...gatewayOptions(store), ...PATIENT })
  const { id, value } = await gateway.keys.create({ name: 'one' })
  const response = await gateway.fetch(
    new Request('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, max_tokens: 16, messages: [{ role: 'user', content: 'Hello there.' }] }),
    }),
  )
  await response.text()
  const usage = await gateway.keys.usage(id)
  await gateway.close()
  return usage.cost.billedUsd
}

export interface KillResult {
  /** Settlements that a process reported before it was killed. */
  readonly reported: readonly string[]
  /** Settlements in the audit log, which has one entry for each. */
  readonly logged: readonly string[]
  readonly tallied: number
  /** Spent and held amounts of each counter after all reservations of killed processes expired. */
  readonly levels: readonly { readonly spent: number; readonly held: number }[]
}

const EXPIRE_MS = 1_500

/** Kills processes at random times while they reserve and settle, and returns the resulting state of the store. */
export async function settleUnderKills(
  place: StorePlace,
  kills: number,
  { processes, atOnce }: { readonly processes: number; readonly atOnce: number },
): Promise<KillResult> {
  const counters = ['budget:key:k:1M:0', 'budget:shared:team:1M:0']
  const { store, close } = await openStore(place)
  const fleet = await createFleet()
  const reported: string[] = []
  const job = {
    type: 'settle',
    place,
    atOnce,
    counters,
    max: 1_000_000,
    expiresAfterMs: EXPIRE_MS,
    expiresAt: Date.now() + 3_600_000,
  } as const
  const onReport = (report: { readonly type: string; readonly reservationId?: string }): void => {
    if (report.reservationId !== undefined) reported.push(report.reservationId)
  }
  try {
    const children = Array.from({ length: processes }, () => fleet.start(job, onReport))
    for (let kill = 0; kill < kills; kill += 1) {
      const seen = reported.length
      const wanted = 5 + ((createHash('sha1').update(String(kill)).digest()[0] ?? 0) % 40)
      while (reported.length < seen + wanted) await pause(2)
      const index = kill % processes
      const victim = children[index]
      if (victim !== undefined) await fleet.kill(victim)
      children[index] = fleet.start(job, onReport)
    }
    await Promise.all(children.map((child) => fleet.kill(child)))
    const levels = await levelsWithoutHolds(store, counters)
    const [tally] = await store.tallies(['usage:k:1d:0'])
    return { reported, logged: await readLog(store), tallied: tally?.['requests'] ?? 0, levels }
  } finally {
    await fleet.close()
    await close()
  }
}

export interface WarningResult {
  /** Ids of the events that processes received, by share. */
  readonly ids: ReadonlyMap<number, ReadonlySet<string>>
  /** Number of recorded events. */
  readonly recorded: number
}

/** Sends requests from several processes until a budget is exhausted, and kills one process after the first event. */
export async function warnFromFleet(
  place: StorePlace,
  { processes, paidFor }: Pick<AskOptions, 'processes' | 'paidFor'>,
): Promise<WarningResult> {
  const oneUsd = await billOfOne()
  const { store, close } = await openStore(place)
  const fleet = await createFleet()
  const ids = new Map<number, Set<string>>()
  try {
    const gateway = createGateway({ ...gatewayOptions(store), ...PATIENT })
    const { value: secret } = await gateway.keys.create({
      name: 'fleet',
      budget_limit_cents: Math.round(paidFor * oneUsd * 100),
      budget_reset_duration: '1M',
    })
    // The requests of the killed process hold a part of the budget until they expire, so they must be few.
    const job = { type: 'warn', place, atOnce: 10, secret } as const
    const children = Array.from({ length: processes }, () =>
      fleet.start(job, (report) => {
        if (report.type === 'warned') ids.set(report.share, (ids.get(report.share) ?? new Set()).add(report.id))
      }),
    )
    while (ids.size === 0) await pause(5)
    const [victim] = children
    if (victim !== undefined) await fleet.kill(victim)
    while (ids.size < 4) await pause(20)
    const recorded = await store.list('budget-event:', { limit: 100 })
    return { ids, recorded: recorded.length }
  } finally {
    await fleet.close()
    await close()
  }
}

/** What a fleet billed to customers, by source. Amounts in nano-dollars. */
export interface SpendResult {
  readonly statuses: Readonly<Record<string, number>>
  /** Spent and held amounts of each counter, with its maximum. */
  readonly levels: readonly (Level & { readonly counter: string; readonly max: number })[]
  /** By customer, user and session, as plugins saw the bills, and as the usage report has them. */
  readonly ended: Readonly<Record<string, number>>
  readonly reported: Readonly<Record<string, number>>
  readonly total: Readonly<Record<'ended' | 'reported' | 'audited' | 'delivered', number>>
  /** Of requests that were answered whole: amounts in their headers, and in their bills. */
  readonly headers: { readonly amount: number; readonly ended: number }
}

/** Sends requests of 50 customers with budgets at four levels from several processes. */
export async function spendFromFleet(
  place: StorePlace,
  { processes, count, atOnce }: { readonly processes: number; readonly count: number; readonly atOnce: number },
): Promise<SpendResult> {
  const { store, close } = await openStore(place)
  const fleet = await createFleet()
  const reports: (FleetReport & { readonly type: 'spent' })[] = []
  const delivered: Record<string, number> = {}
  try {
    const children = Array.from({ length: processes }, (_, seed) =>
      fleet.start({ type: 'spend', place, count: count / processes, total: count, atOnce, seed }, (report) => {
        if (report.type === 'spent') reports.push(report)
        if (report.type === 'delivered') Object.assign(delivered, report.amounts)
      }),
    )
    await Promise.all(children.map(exitOf))
    const { governance: _, ...options } = spendOptions(store, count)
    const gateway = createGateway({
      ...options,
      plugins: [reportEvents((amounts) => Object.assign(delivered, amounts))],
    })
    const ended = sumOf(reports.map(({ billed }) => billed))
    // The first request of a gateway starts the delivery of what others left.
    await gateway.fetch('http://gateway/health')
    while (total(delivered) < total(ended)) await pause(20)
    const reported: Record<string, number> = {}
    for (let after: string | undefined; ;) {
      const groupBy = ['customer', 'user', 'session'] as const
      const { rows, next } = await gateway.usage.report({ groupBy, ...(after !== undefined && { after }) })
      for (const { group, cost } of rows)
        reported[`${group['customer']} ${group['user']} ${group['session']}`] = cost.billedNanoUsd
      if (next === null) break
      after = next
    }
    let audited = 0
    for (let after: string | undefined; ;) {
      const { records, next } = await gateway.audit.read({ limit: 1_000, ...(after !== undefined && { after }) })
      for (const { costUsd } of records) audited += Math.round(costUsd * 1e9)
      if (next === undefined) break
      after = next
    }
    await gateway.close()
    const maxima = new Map(reports.flatMap(({ counters }) => Object.entries(counters)))
    const counters = [...maxima.keys()]
    const levels = await store.levels(counters)
    return {
      statuses: sumOf(reports.map(({ statuses }) => statuses)),
      levels: levels.map((level, index) => {
        const counter = counters[index] ?? ''
        return { ...level, counter, max: maxima.get(counter) ?? 0 }
      }),
      ended: withoutZeros(ended),
      reported: withoutZeros(reported),
      total: { ended: total(ended), reported: total(reported), audited, delivered: total(delivered) },
      headers: { amount: 0, ended: 0, ...sumOf(reports.map(({ headers }) => headers)) },
    }
  } finally {
    await fleet.close()
    await close()
  }
}

function sumOf(records: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const sums: Record<string, number> = {}
  for (const [name, amount] of records.flatMap(Object.entries<number>)) sums[name] = (sums[name] ?? 0) + amount
  return sums
}

function total(amounts: Readonly<Record<string, number>>): number {
  return Object.values(amounts).reduce((sum, amount) => sum + amount, 0)
}

function withoutZeros(amounts: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(amounts).filter(([, amount]) => amount > 0))
}

export interface BillingResult {
  /** Ids of the audit records of billed requests. */
  readonly billed: readonly string[]
  /** Ids of the events that processes received. */
  readonly delivered: ReadonlySet<string>
  readonly reconciliation: Reconciliation
}

/** Sends requests from several processes with billing events, and kills one process after its first event. */
export async function billFromFleet(
  place: StorePlace,
  { processes, count }: Pick<AskOptions, 'processes' | 'count'>,
): Promise<BillingResult> {
  const { store, close } = await openStore(place)
  const fleet = await createFleet()
  const delivered = new Set<string>()
  const send: SendBillingEvents = (events) => events.forEach(({ id }) => delivered.add(id))
  try {
    const gateway = createGateway({ ...gatewayOptions(store), ...PATIENT })
    const { value: secret } = await gateway.keys.create({ name: 'fleet' })
    const job = { type: 'bill', place, atOnce: 10, count: count / processes, secret } as const
    const onReport = (report: FleetReport): void => {
      if (report.type !== 'billed') return
      for (const id of report.ids) delivered.add(id)
    }
    const [victim, ...others] = Array.from({ length: processes }, () => fleet.start(job, onReport))
    while (delivered.size === 0) await pause(5)
    if (victim !== undefined) await fleet.kill(victim)
    await Promise.all(others.map(exitOf))
    // By its clock, the claim of the killed process has ended, so it delivers what that process had claimed.
    const later = createGateway({
      ...gatewayOptions(store),
      ...PATIENT,
      plugins: [billingEvents({ send, batch: { delayMs: 20 } })],
      runtime: { now: () => Date.now() + LEASE_MS },
    })
    await later.fetch('http://gateway/health')
    const day = new Date().toISOString().slice(0, 10)
    let reconciliation = await later.usage.reconcile({ from: day, to: day })
    while (reconciliation.differences.some(({ kind }) => kind === 'waiting')) {
      await pause(100)
      reconciliation = await later.usage.reconcile({ from: day, to: day })
    }
    await later.close()
    const audit = (await readLog(store)).map((value) => JSON.parse(value) as Record<string, unknown>)
    const billed = audit
      .filter((record) => Number(record['cost_usd']) > 0)
      .map((record) => String(record['request_id']))
    await gateway.close()
    return { billed, delivered, reconciliation }
  } finally {
    await fleet.close()
    await close()
  }
}

/** Waits until the reservations of killed processes expire, and returns the levels. */
async function levelsWithoutHolds(store: Store, counters: readonly string[]): Promise<readonly Level[]> {
  for (;;) {
    const levels = await store.levels(counters)
    if (levels.every(({ held }) => held === 0)) return levels
    await pause(100)
  }
}

async function readLog(store: Store): Promise<readonly string[]> {
  const values: string[] = []
  for (let after = ''; ;) {
    const page = await store.entries('audit', { limit: 1_000, ...(after !== '' && { after }) })
    const last = page.at(-1)
    if (last === undefined) return values
    values.push(...page.map(({ value }) => value))
    after = last.cursor
  }
}

export function newName(): string {
  return `fleet_${randomUUID().replaceAll('-', '').slice(0, 20)}`
}
