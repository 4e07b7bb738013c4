/** @own-process: takes long, and starts many processes. */
import { afterAll, describe, expect, it } from 'vitest'
import { IS_FULL } from '../support/full.ts'
import {
  askFromFleet,
  billFromFleet,
  newName,
  settleUnderKills,
  spendFromFleet,
  warnFromFleet,
} from '../support/fleet/scenarios.ts'
import type { StorePlace } from '../support/fleet/open-store.ts'
import { postgresServer, redisCluster, redisServer } from '../support/servers.ts'
import { temporaryDirectory } from '../support/sqlite.ts'

/** The bench (npm run bench:kills) kills 100 processes per engine. */
const KILLS = IS_FULL ? 6 : 2
/** Requests of all processes. An eighth of them is within the request limit. */
const COUNT = IS_FULL ? 4_000 : 400
const PROCESSES = 4
/** Requests of all processes, all at once. */
const SPENDING = 1_000
/** Number of concurrent settlements per process. */
const AT_ONCE = 8

const directory = temporaryDirectory()
const redis = redisServer()
const postgres = postgresServer()
const cluster = redisCluster()
const file = { start: async () => directory.path, stop: async () => {} }

const engines = [
  { engine: 'sqlite', server: file },
  { engine: 'redis', server: redis },
  { engine: 'cluster', server: cluster },
  { engine: 'sharded cluster', server: cluster },
  { engine: 'postgres', server: postgres },
] as const

afterAll(async () => {
  directory.remove()
  await redis?.stop()
  await postgres?.stop()
})

describe.each(engines)('4 processes on one $engine', ({ engine, server }) => {
  let location: string | undefined
  const createPlace = async (): Promise<StorePlace> => {
    location ??= (await server?.start()) ?? ''
    return { engine, location, name: newName() }
  }

  it.skipIf(server === undefined)(
    'serve exactly the request limit of a key, and bill exactly those requests',
    async () => {
      const served = COUNT / 8
      const limits = { count: COUNT, requestLimit: served, paidFor: 1_000 }
      const { statuses, requests, billedUsd, oneUsd } = await askFromFleet({
        place: await createPlace(),
        processes: PROCESSES,
        ...limits,
      })
      expect(statuses['200']).toBe(served)
      expect(Object.keys(statuses).filter((status) => !['200', '402', '429'].includes(status))).toEqual([])
      expect(requests).toBe(served)
      expect(billedUsd).toBeCloseTo(served * oneUsd, 6)
    },
    600_000,
  )

  it.skipIf(server === undefined || !IS_FULL)(
    'exceed no budget of 50 customers, their parents, users and sessions, and report, audit and deliver exactly what was billed',
    async () => {
      const options = { processes: PROCESSES, count: SPENDING, atOnce: SPENDING / PROCESSES }
      const { statuses, levels, ended, reported, total, headers } = await spendFromFleet(await createPlace(), options)
      expect(Object.keys(statuses)).toEqual(expect.arrayContaining(['200', '402', '499', '502']))
      expect(Object.keys(statuses).filter((status) => !['200', '402', '429', '499', '502'].includes(status))).toEqual(
        [],
      )
      expect(levels.filter(({ spent, max }) => spent > max)).toEqual([])
      expect(levels.filter(({ held }) => held > 0)).toEqual([])
      for (const level of ['customer', 'parent', 'user', 'session'])
        expect(levels.some(({ counter, spent }) => counter.includes(level) && spent > 0)).toBe(true)
      expect(total.ended).toBeGreaterThan(0)
      expect(reported).toEqual(ended)
      expect(total.audited).toBe(total.ended)
      expect(total.delivered).toBe(total.ended)
      expect(headers.amount).toBe(headers.ended)
    },
    600_000,
  )

  // 1,000 requests take minutes on SQLite, whose processes wait for each other.
  it.skipIf(server === undefined || engine === 'sqlite')(
    'record each share of a budget once, and deliver its event although a process is killed',
    async () => {
      const { ids, recorded } = await warnFromFleet(await createPlace(), {
        processes: PROCESSES,
        paidFor: 1_000,
      })
      expect(recorded).toBe(4)
      expect(Array.from(ids.keys()).toSorted()).toEqual([0.5, 0.8, 0.95, 1])
      for (const found of ids.values()) expect(found.size).toBe(1)
    },
    600_000,
  )

  it.skipIf(server === undefined || !IS_FULL)(
    'deliver the billing event of each request although a process is killed',
    async () => {
      const { billed, delivered, reconciliation } = await billFromFleet(await createPlace(), {
        processes: PROCESSES,
        count: 400,
      })
      expect(billed.length).toBeGreaterThanOrEqual(300)
      expect(billed.filter((id) => !delivered.has(id))).toEqual([])
      expect(reconciliation.differences).toEqual([])
    },
    600_000,
  )

  it.skipIf(server === undefined)(
    'lose no settlement, and bill none twice, when they are killed at random',
    async () => {
      const { reported, logged, tallied, levels } = await settleUnderKills(await createPlace(), KILLS, {
        processes: PROCESSES,
        atOnce: AT_ONCE,
      })
      expect(reported.length).toBeGreaterThan(KILLS)
      expect(new Set(logged).size).toBe(logged.length)
      expect(reported.filter((reservationId) => !logged.includes(reservationId))).toEqual([])
      if (engine === 'sharded cluster') {
        // A process killed between the slots of a settlement loses the parts that it did not send.
        const cut = (KILLS + PROCESSES) * AT_ONCE
        expect(tallied - logged.length).toBeLessThanOrEqual(cut)
        expect(levels.map(({ held }) => held)).toEqual([0, 0])
        expect(levels[0]?.spent).toBe(tallied)
        expect(tallied - (levels[1]?.spent ?? 0)).toBeLessThanOrEqual(cut)
        return
      }
      expect(tallied).toBe(logged.length)
      expect(levels).toEqual([
        { spent: logged.length, held: 0 },
        { spent: logged.length, held: 0 },
      ])
    },
    600_000,
  )
})
