/** @own-process: PGlite takes 500 MB, which a shared process would keep. */
import { randomUUID } from 'node:crypto'
import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { postgresStore, type PostgresClient, type PostgresStore } from '../../src/postgres.ts'
import { testStore } from '../contract/store.ts'
import { openPglite, openPool, openPostgresJs, type OpenPostgres } from '../support/postgres.ts'
import { postgresServer } from '../support/servers.ts'
import { dropsFromTheShareWithTheMostBytes } from './largest-share.ts'

const server = postgresServer()

const setups = [
  { name: 'PGlite', isSkipped: false, open: openPglite },
  { name: 'pg', isSkipped: server === undefined, open: async () => openPool((await server?.start()) ?? '') },
  {
    name: 'postgres.js',
    isSkipped: server === undefined,
    open: async () => openPostgresJs((await server?.start()) ?? ''),
  },
]

afterAll(async () => server?.stop())

describe.each(setups)('postgresStore with $name', ({ name, isSkipped, open }) => {
  describe.skipIf(isSkipped)(name, () => {
    const schema = `test_${randomUUID().replaceAll('-', '')}`.slice(0, 30)
    let opened: OpenPostgres
    let run: (text: string) => Promise<readonly unknown[]>

    beforeAll(async () => {
      opened = await open()
      run = runnerOf(opened.client)
      await postgresStore({ client: opened.client, schema }).migrate()
    })
    afterAll(async () => {
      await run(`DROP SCHEMA ${schema} CASCADE`)
      await opened.close()
    })
    const empty = async (): Promise<void> => {
      await run(
        `TRUNCATE ${['entries', 'log_entries', 'shares', 'counters', 'reservations', 'holds', 'tallies'].map((table) => `${schema}.${table}`).join(', ')}`,
      )
    }

    testStore(`postgresStore with ${name}`, async (clock) => {
      await empty()
      return postgresStore({ client: opened.client, schema, now: clock.now })
    })

    it('uses the clock of the server by default', async () => {
      await empty()
      const store = postgresStore({ client: opened.client, schema })
      const claim = { counter: 'c', amount: 1, max: 2, expiresAt: Date.now() + 60_000 }
      await store.set('a', 'x', { ttlMs: 60_000 })
      expect(await store.get('a')).toBe('x')
      expect(await store.reserve({ reservationId: 't', claims: [claim], expiresAfterMs: 60_000 })).toMatchObject({
        levels: [1],
      })
      expect(await store.settle({ reservationId: 't', charges: [], tallies: [] })).toBe(true)
    })

    it('migrates once when several processes migrate concurrently', async () => {
      const store = postgresStore({ client: opened.client, schema })
      await Promise.all([store.migrate(), store.migrate(), store.migrate()])
      expect(await run(`SELECT version FROM ${schema}.migrations`)).toEqual([{ version: 1 }, { version: 2 }])
    })

    it('names the command that creates a missing schema', async () => {
      const store = postgresStore({ client: opened.client, schema: 'never_migrated' })
      await expect(store.get('a')).rejects.toThrow('Run "npx sluice migrate"')
    })

    it('partitions the audit by month', async () => {
      const store = postgresStore({ client: opened.client, schema })
      await empty()
      await store.append('audit', { at: Date.now(), value: 'now' })
      const month = new Date().toISOString().slice(0, 7).replace('-', '_')
      expect(await run(`SELECT value FROM ${schema}.log_entries_${month}`)).toEqual([{ value: 'now' }])
    })

    it('a sweep removes only expired rows', async () => {
      await empty()
      let time = Date.now()
      const store = postgresStore({ client: opened.client, schema, now: () => time })
      await writeRows(store, time)
      time += 4 * 3_600_000
      const request = JSON.stringify({ now: time, limits: LIMITS })
      await run(`SELECT ${schema}.sweep('${request}')`)
      const counts = ['entries', 'log_entries', 'counters', 'reservations', 'holds', 'tallies'].map(async (table) => {
        const rows = await run(`SELECT count(*)::int AS count FROM ${schema}.${table}`)
        return [table, rows[0]]
      })
      expect(await Promise.all(counts)).toEqual([
        ['entries', { count: 1 }],
        ['log_entries', { count: 1 }],
        ['counters', { count: 1 }],
        ['reservations', { count: 0 }],
        ['holds', { count: 0 }],
        ['tallies', { count: 1 }],
      ])
      expect(await store.get('durable')).toBe('x')
    })

    it('a sweep keeps full pools within their limits by dropping the oldest of the largest share', async () => {
      await empty()
      const store = postgresStore({ client: opened.client, schema })
      await store.set('record', 'x')
      for (let n = 0; n < 3; n += 1) await store.set(`turn:${n}`, 'x', { ttlMs: 60_000 })
      for (let n = 0; n < 20; n += 1) await store.set(`flood:${n}`, 'x'.repeat(100), { ttlMs: 60_000 })
      const limits = { ...LIMITS, expiring: { entries: 10, bytes: 1_000_000 } }
      await run(`SELECT ${schema}.sweep('${JSON.stringify({ limits })}')`)
      expect(await store.get('record')).toBe('x')
      expect(await store.list('turn:', { limit: 100 })).toHaveLength(3)
      expect(await store.list('flood:', { limit: 100 })).toHaveLength(7)
    })

    dropsFromTheShareWithTheMostBytes(
      async () => {
        await empty()
        return postgresStore({ client: opened.client, schema })
      },
      () => {
        const limits = { ...LIMITS, expiring: { entries: 10, bytes: 1_000_000 } }
        return run(`SELECT ${schema}.sweep('${JSON.stringify({ limits })}')`)
      },
    )

    it('takes one round trip for a reservation, and one for a settlement with tallies and audit', async () => {
      await empty()
      const texts: string[] = []
      const countingClient: PostgresClient = {
        query: async (text) => {
          texts.push(text)
          return { rows: [{ result: '{"granted":0,"levels":[],"settled":true}' }] }
        },
      }
      const store = postgresStore({ client: countingClient, schema })
      const expiresAt = Date.now() + 60_000
      const claims = ['requests:key:k:1h:0', 'budget:shared:b:1M:0'].map((counter) => ({
        counter,
        amount: 1,
        max: 9,
        expiresAt,
      }))
      await store.reserve({ reservationId: 't', claims, expiresAfterMs: 60_000 })
      await store.settle({
        reservationId: 't',
        charges: claims.map(({ counter }) => ({ counter, amount: 1, expiresAt })),
        tallies: [{ name: 'usage:k:1d:0', amounts: { requests: 1 }, expiresAt }],
        entries: ['audit', 'audit:k'].map((log) => ({ log, at: 1, value: 'record', ttlMs: 60_000 })),
      })
      expect(texts).toEqual([
        `SELECT ${schema}.reserve_claims($1::text) AS result`,
        `SELECT ${schema}.settle_reservation($1::text) AS result`,
      ])
    })
  })
})

describe.skipIf(server === undefined)('postgresStore while another transaction reads the log entries', () => {
  it('creates no partition, because settlements would wait for the end of that transaction', async () => {
    const url = (await server?.start()) ?? ''
    const schema = `test_${randomUUID().replaceAll('-', '')}`.slice(0, 30)
    const [writer, reader] = [await openPool(url), new Client(url)]
    await reader.connect()
    const run = runnerOf(writer.client)
    const partitions = async (): Promise<readonly unknown[]> =>
      run(`SELECT 1 FROM pg_inherits WHERE inhparent = '${schema}.log_entries'::regclass`)
    await postgresStore({ client: writer.client, schema }).migrate()
    const [newest] = await run(
      `SELECT inhrelid::regclass::text AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
       WHERE inhparent = '${schema}.log_entries'::regclass AND relname <> 'log_entries_other' ORDER BY relname DESC LIMIT 1`,
    )
    await run(`DROP TABLE ${(newest as { readonly name: string }).name}`)

    await reader.query(`BEGIN; SELECT 1 FROM ${schema}.log_entries`)
    await run(`SELECT ${schema}.create_partitions('{}')`)
    expect(await partitions()).toHaveLength(3)
    await reader.query('COMMIT')
    await run(`SELECT ${schema}.create_partitions('{}')`)
    expect(await partitions()).toHaveLength(4)

    await run(`DROP SCHEMA ${schema} CASCADE`)
    await Promise.all([reader.end(), writer.close()])
  })
})

it('rejects a schema name that needs quotes', () => {
  expect(() => postgresStore({ client: { query: async () => ({ rows: [] }) }, schema: 'a; DROP' })).toThrow(
    'postgresStore: schema: expected',
  )
})

const LIMIT = { entries: 1_000, bytes: 1_000_000 }
const LIMITS = { owned: LIMIT, expiring: LIMIT, logs: LIMIT }

/** Writes one expired row and one unexpired row of most kinds. `now` is the time an hour before the expiry. */
async function writeRows(store: PostgresStore, now: number): Promise<void> {
  const hour = 3_600_000
  await store.set('expiring', 'x', { ttlMs: hour, quota: { name: 'turn:k', maxEntries: 9, maxBytes: 9_000 } })
  await store.set('durable', 'x')
  await store.append('audit', { at: now, value: 'expiring', ttlMs: hour })
  await store.append('audit', { at: now, value: 'durable' })
  const claim = { counter: 'expiring', amount: 1, max: 9, expiresAt: now + hour }
  await store.reserve({ reservationId: 'left', claims: [claim], expiresAfterMs: 1_000 })
  await store.reserve({ reservationId: 'settled', claims: [], expiresAfterMs: 1_000 })
  await store.settle({
    reservationId: 'settled',
    charges: [{ counter: 'durable', amount: 1, expiresAt: now + 24 * hour }],
    tallies: [
      { name: 'expiring', amounts: { n: 1 }, expiresAt: now + hour },
      { name: 'durable', amounts: { n: 1 }, expiresAt: now + 24 * hour },
    ],
  })
}

function runnerOf(client: PostgresClient): (text: string) => Promise<readonly unknown[]> {
  if ('unsafe' in client) return async (text) => [...(await client.unsafe(text, []))]
  return async (text) => (await client.query(text, [])).rows
}
