/**
 * npm run bench:stores: measures governed requests and bare store operations with every store in one run.
 *
 * Servers are found through REDIS_URL, REDIS_CLUSTER_URL and DATABASE_URL, or are started from binaries on the PATH. An
 * engine without a server is skipped. Rounds alternate between the engines; a figure is the median over the rounds.
 */
import { randomUUID } from 'node:crypto'
import { createGateway, type Store } from 'sluice'
import { newName } from '../../test/support/fleet/scenarios.ts'
import { gatewayOptions, MODEL } from '../../test/support/fleet/jobs.ts'
import { openStore, type OpenedStore, type StorePlace } from '../../test/support/fleet/open-store.ts'
import { postgresServer, redisCluster, redisServer } from '../../test/support/servers.ts'
import { temporaryDirectory } from '../../test/support/sqlite.ts'

const ROUNDS = Number(process.env['BENCH_ROUNDS'] ?? 5)
const REQUESTS = 400
const CONCURRENCY = 32
const KEYS = 50

interface Round {
  readonly perSecond: number
  readonly cpuMicros: number
  readonly p50: number
  readonly p99: number
}

interface StoreUnderTest {
  readonly engine: StorePlace['engine']
  readonly opened: OpenedStore
  readonly step: () => Promise<void>
  readonly request: () => Promise<void>
  readonly steps: Round[]
  readonly requests: Round[]
}

const directory = temporaryDirectory()
const servers = { redis: redisServer(), cluster: redisCluster(), postgres: postgresServer() }
const places: StorePlace[] = [
  { engine: 'memory', location: '', name: '' },
  { engine: 'sqlite', location: directory.path, name: newName() },
  { engine: 'pglite', location: '', name: newName() },
]
for (const [engine, server] of Object.entries(servers)) {
  if (server === undefined) continue
  places.push({ engine: engine as keyof typeof servers, location: await server.start(), name: newName() })
}

/** The store operations of one governed request: a reservation, then a settlement with tallies and audit records. */
function stepOf(store: Store): () => Promise<void> {
  let number = 0
  return async () => {
    const key = `k${(number += 1) % KEYS}`
    const reservationId = randomUUID()
    const expiresAt = Date.now() + 7_200_000
    const counters = ['requests', 'tokens', 'budget'].map((kind) => `${kind}:key:${key}:1h:0`)
    const claims = counters.map((counter) => ({ counter, amount: 10, max: Number.MAX_SAFE_INTEGER, expiresAt }))
    await store.reserve({ reservationId, claims, expiresAfterMs: 600_000 })
    const amounts = { requests: 1, prompt: 20, completion: 30, saved: 0, theoretical: 9, actual: 9, billed: 9 }
    const quota = { name: `audit:${key}`, maxEntries: 50_000, maxBytes: 32_000_000 }
    const entry = { at: Date.now(), value: 'x'.repeat(600), quota }
    await store.settle({
      reservationId,
      charges: counters.map((counter) => ({ counter, amount: 5, expiresAt })),
      tallies: [`usage:${key}:1d:0`, `usage-by-model:${key}:1d:0`].map((name) => ({ name, amounts, expiresAt })),
      entries: [
        { ...entry, log: 'audit' },
        { ...entry, log: `audit:${key}` },
      ],
    })
  }
}

async function requestOf(store: Store): Promise<() => Promise<void>> {
  const gateway = createGateway(gatewayOptions(store))
  const created = Array.from({ length: KEYS }, (_, n) =>
    gateway.keys.create({ name: `bench ${n}`, budget_limit_cents: 100_000_000, rate_limit_requests: 1_000_000_000 }),
  )
  const secrets = (await Promise.all(created)).map(({ value }) => value)
  const body = JSON.stringify({ model: MODEL, max_tokens: 16, messages: [{ role: 'user', content: 'Hello there.' }] })
  let number = 0
  return async () => {
    const authorization = `Bearer ${secrets[(number += 1) % KEYS]}`
    const headers = { authorization, 'content-type': 'application/json' }
    const response = await gateway.fetch(
      new Request('http://gateway/v1/chat/completions', { method: 'POST', headers, body }),
    )
    const text = await response.text()
    if (response.status !== 200)
      throw new Error(`Expected status 200 from the gateway, got ${response.status}: ${text}`)
  }
}

async function measure(work: () => Promise<void>): Promise<Round> {
  const times: number[] = []
  let left = REQUESTS
  const startedAt = performance.now()
  const cpuBefore = process.cpuUsage()
  const worker = async (): Promise<void> => {
    while ((left -= 1) >= 0) {
      const from = performance.now()
      await work()
      times.push(performance.now() - from)
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, worker))
  const cpu = process.cpuUsage(cpuBefore)
  const sorted = times.toSorted((a, b) => a - b)
  return {
    perSecond: REQUESTS / ((performance.now() - startedAt) / 1000),
    cpuMicros: (cpu.user + cpu.system) / REQUESTS,
    p50: sorted[Math.floor(sorted.length * 0.5)] ?? 0,
    p99: sorted[Math.floor(sorted.length * 0.99)] ?? 0,
  }
}

const stores: StoreUnderTest[] = []
for (const place of places) {
  const opened = await openStore(place)
  const { store } = opened
  stores.push({
    engine: place.engine,
    opened,
    step: stepOf(store),
    request: await requestOf(store),
    steps: [],
    requests: [],
  })
}
for (const { step, request } of stores) for (const work of [step, request]) await measure(work)
for (let round = 0; round < ROUNDS; round += 1) {
  for (const store of stores) {
    store.steps.push(await measure(store.step))
    store.requests.push(await measure(store.request))
  }
}

function median(rounds: readonly Round[], field: keyof Round): number {
  const values = rounds.map((round) => round[field]).toSorted((a, b) => a - b)
  return values[Math.floor(values.length / 2)] ?? 0
}

function rowsOf(rounds: (store: StoreUnderTest) => readonly Round[]): Readonly<Record<string, object>> {
  return Object.fromEntries(
    stores.map((store) => {
      const of = rounds(store)
      return [
        store.engine,
        {
          'requests/s': Math.round(median(of, 'perSecond')),
          'CPU µs': Math.round(median(of, 'cpuMicros')),
          'p50 ms': Number(median(of, 'p50').toFixed(1)),
          'p99 ms': Number(median(of, 'p99').toFixed(1)),
        },
      ]
    }),
  )
}

console.log(
  `\nReserve and settle with tallies and audit: ${CONCURRENCY} concurrent, ${KEYS} keys, ${ROUNDS} rounds of ${REQUESTS}`,
)
console.table(rowsOf((store) => store.steps))
console.log(`\nGoverned requests through gateway.fetch to extractive(): ${CONCURRENCY} concurrent`)
console.table(rowsOf((store) => store.requests))

for (const { opened } of stores) await opened.close()
for (const server of Object.values(servers)) await server?.stop()
directory.remove()
process.exit(0)
