import { createHash, randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { Level, Store } from '../../../src/core/store.ts'
import { createGateway } from '../../../src/index.ts'
import { createFleet, exitOf } from './fleet.ts'
import { gatewayOptions, MODEL, PATIENT } from './jobs.ts'
import { openStore, type StorePlace } from './open-store.ts'

/** What a fleet did with one key. */
export interface FleetUsage {
  /** Answers by status, over all processes. */
  readonly statuses: Readonly<Record<string, number>>
  /** Requests and tokens by the usage report. */
  readonly requests: number
  readonly billedUsd: number
  /** The bill of one request, by a gateway of its own. */
  readonly oneUsd: number
}

export interface AskOptions {
  readonly place: StorePlace
  readonly processes: number
  /** Requests over all processes. */
  readonly count: number
  readonly requestLimit: number
  /** How many requests the budget pays for. */
  readonly paidFor: number
}

/** Sends requests with one key from several processes at once. */
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

/** The bill of one request of the fleet. */
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
  /** Settlements by the log: one entry each. */
  readonly logged: readonly string[]
  readonly tallied: number
  /** Spent and held of each counter after all reservations of killed processes have lapsed. */
  readonly levels: readonly { readonly spent: number; readonly held: number }[]
}

const LAPSE_MS = 1_500

/** Kills processes at random moments while they reserve and settle, and reads what the store has afterwards. */
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
    expiresAfterMs: LAPSE_MS,
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

/** Waits until what killed processes held has expired, and returns the levels. */
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
