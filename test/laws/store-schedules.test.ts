/** @own-process: PGlite takes 500 MB, which a shared process would keep. */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import Database from 'libsql'
import { Redis } from 'ioredis'
import { afterAll, describe, expect, it } from 'vitest'
import type { Store } from '../../src/core/store.ts'
import { postgresStore } from '../../src/postgres.ts'
import { redisStore } from '../../src/redis.ts'
import { sqliteStore } from '../../src/sqlite.ts'
import { memoryStore } from '../../src/stores/memory.ts'
import { openPglite, type OpenPostgres } from '../support/postgres.ts'
import { cases, fc } from '../support/properties.ts'
import { redisServer } from '../support/servers.ts'
import { temporaryDirectory } from '../support/sqlite.ts'

const LAPSE = 1_000
const MAXES = [50, 120] as const
const COUNTERS = ['a', 'b'] as const

/** Actions in any order: reserve, settle (also twice or late), and wait. */
const action = fc.oneof(
  fc.record({
    type: fc.constant('reserve' as const),
    amount: fc.nat(40),
    elastic: fc.boolean(),
    least: fc.nat(40),
    both: fc.boolean(),
  }),
  fc.record({ type: fc.constant('settle' as const), pick: fc.nat(), used: fc.nat(60) }),
  fc.record({ type: fc.constant('wait' as const), ms: fc.nat(700) }),
)

interface OpenReservation {
  readonly reservationId: string
  readonly counters: readonly string[]
  readonly granted: number
  readonly lapsesAt: number
}

type Now = () => number

const directory = temporaryDirectory()
const redis = redisServer()
let redisClient: Redis | undefined
let pglite: OpenPostgres | undefined

async function createRedis(now: Now, shardByOwner: boolean): Promise<Store> {
  redisClient ??= new Redis((await redis?.start()) ?? '')
  return redisStore({ client: redisClient, prefix: `law-${randomUUID()}`, now, shardByOwner })
}

async function createPostgres(now: Now): Promise<Store> {
  pglite ??= await openPglite()
  const store = postgresStore({ client: pglite.client, now })
  await store.migrate()
  const tables = ['counters', 'reservations', 'holds'].map((table) => `sluice.${table}`).join(', ')
  if ('query' in pglite.client) await pglite.client.query(`TRUNCATE ${tables}`, [])
  return store
}

const stores = [
  { name: 'memoryStore', numRuns: cases(300), isSkipped: false, make: async (now: Now) => memoryStore({ now }) },
  {
    name: 'sqliteStore',
    numRuns: cases(100),
    isSkipped: false,
    make: async (now: Now) => sqliteStore({ database: new Database(join(directory.path, `${randomUUID()}.db`)), now }),
  },
  { name: 'postgresStore', numRuns: cases(12), isSkipped: false, make: createPostgres },
  {
    name: 'redisStore',
    numRuns: cases(50),
    isSkipped: redis === undefined,
    make: (now: Now) => createRedis(now, false),
  },
  {
    name: 'redisStore by owner',
    numRuns: cases(50),
    isSkipped: redis === undefined,
    make: (now: Now) => createRedis(now, true),
  },
]

afterAll(async () => {
  redisClient?.disconnect()
  await pglite?.close()
  await redis?.stop()
  directory.remove()
})

const title =
  'in any schedule of reserve, settle and lapse the store agrees with plain sums and no reservation passes a limit'

describe.each(stores)('$name', ({ make, numRuns, isSkipped }) => {
  it.skipIf(isSkipped)(title, { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(action, { maxLength: 60 }), async (actions) => {
        let now = 0
        const store = await make(() => now)
        const spent = new Map<string, number>()
        const open: OpenReservation[] = []
        const settled = new Set<string>()
        const held = (counter: string): number =>
          open
            .filter((one) => one.counters.includes(counter) && !settled.has(one.reservationId) && now < one.lapsesAt)
            .reduce((sum, one) => sum + one.granted, 0)

        for (const [index, step] of actions.entries()) {
          if (step.type === 'wait') now += step.ms
          if (step.type === 'reserve') {
            const counters = step.both ? COUNTERS : COUNTERS.slice(0, 1)
            const claims = counters.map((counter, n) => ({
              counter,
              amount: step.amount,
              max: MAXES[n]!,
              expiresAt: 1e9,
              elastic: step.elastic,
            }))
            const rooms = counters.map((counter, n) => MAXES[n]! - held(counter) - (spent.get(counter) ?? 0))
            const least = step.elastic ? Math.min(step.amount, step.least) : step.amount
            const result = await store.reserve({
              reservationId: `t${index}`,
              claims,
              minGrant: step.least,
              expiresAfterMs: LAPSE,
            })
            expect(result.accepted).toBe(rooms.every((room) => room >= least))
            if (!result.accepted) continue
            const granted = step.elastic ? result.granted : step.amount
            if (step.elastic) expect(granted).toBe(Math.min(step.amount, ...rooms))
            open.push({ reservationId: `t${index}`, counters, granted, lapsesAt: now + LAPSE })
            for (const [n, level] of result.levels.entries()) expect(level).toBeLessThanOrEqual(MAXES[n]!)
          }
          const chosen = step.type === 'settle' ? open[step.pick % Math.max(1, open.length)] : undefined
          if (step.type === 'settle' && chosen !== undefined) {
            const charges = chosen.counters.map((counter) => ({ counter, amount: step.used, expiresAt: 1e9 }))
            const first = !settled.has(chosen.reservationId)
            expect(await store.settle({ reservationId: chosen.reservationId, charges, tallies: [] })).toBe(first)
            settled.add(chosen.reservationId)
            for (const { counter } of first ? charges : []) spent.set(counter, (spent.get(counter) ?? 0) + step.used)
          }
          expect(await store.levels(COUNTERS)).toEqual(
            COUNTERS.map((counter) => ({ spent: spent.get(counter) ?? 0, held: held(counter) })),
          )
        }
      }),
      { numRuns },
    )
  })
})
