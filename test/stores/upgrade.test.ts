/** @own-process: PGlite takes 500 MB, which a shared process would keep. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { postgresStore } from '../../src/postgres.ts'
import { sqliteStore } from '../../src/sqlite.ts'
import type { Store } from '../../src/core/store.ts'
import { openPglite } from '../support/postgres.ts'
import { sqliteDrivers, temporaryDirectory } from '../support/sqlite.ts'

/** The statements with which the first version of each store created its schema. */
const versionOne = (engine: 'postgres' | 'sqlite'): string =>
  readFileSync(new URL(`version-1/${engine}.sql`, import.meta.url), 'utf8')

const directory = temporaryDirectory()
afterAll(() => directory.remove())

const NOW = Date.UTC(2026, 0, 15)
const claim = { counter: 'c', amount: 1, max: 10, expiresAt: NOW + 86_400_000 }

async function expectOpenReservation(store: Store): Promise<void> {
  expect(await store.levels(['c'])).toEqual([{ spent: 0, held: 3 }])
  await expect(async () =>
    store.reserve({ reservationId: 'open', claims: [claim], expiresAfterMs: 60_000 }),
  ).rejects.toThrow('reservationId')
  expect(await store.settle({ reservationId: 'open', charges: [{ ...claim, amount: 2 }], tallies: [] })).toBe(true)
  expect(await store.levels(['c'])).toEqual([{ spent: 2, held: 0 }])
  expect(await store.reserve({ reservationId: 'new', claims: [claim], expiresAfterMs: 60_000 })).toMatchObject({
    accepted: true,
    levels: [3],
  })
}

it('settles a reservation of a PostgreSQL schema of version 1 after the migration', async () => {
  const { client, close } = await openPglite()
  if (!('query' in client)) throw new Error('PGlite has a method query.')
  await client.query(versionOne('postgres'), [])
  const reservation = { now: NOW, ticket: 'open', lapsesAfter: 60_000 }
  const claims = [{ place: 0, counter: 'c', amount: 3, max: 10, ends: claim.expiresAt }]
  await client.query('SELECT sluice.reserve($1::text)', [JSON.stringify({ ...reservation, claims })])
  const store = postgresStore({ client, now: () => NOW })

  await expect(async () =>
    store.reserve({ reservationId: 'early', claims: [claim], expiresAfterMs: 60_000 }),
  ).rejects.toThrow('Run "npx sluice migrate"')

  await store.migrate()
  await expectOpenReservation(store)
  await close()
})

it.each(sqliteDrivers())('settles a reservation of a SQLite file of version 1 with $name', async ({ name, open }) => {
  const database = open(join(directory.path, `${name.replaceAll(':', '-')}.db`))
  database.exec(`
    ${versionOne('sqlite')}
    INSERT INTO counters VALUES ('c', 0, 3, ${claim.expiresAt});
    INSERT INTO tickets VALUES ('open', ${NOW + 60_000});
    INSERT INTO holds VALUES ('open', 'c', 3, ${NOW + 60_000});
    PRAGMA user_version = 1;
  `)

  await expectOpenReservation(sqliteStore({ database, now: () => NOW }))
  database.close()
})
