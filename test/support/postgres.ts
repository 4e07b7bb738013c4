import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { setFlagsFromString } from 'node:v8'
import type { PGlite, PGliteOptions } from '@electric-sql/pglite'
import type { PostgresClient } from '../../src/postgres.ts'

// Processes that open one kind of client do not load the packages of the others.

export interface OpenPostgres {
  readonly client: PostgresClient
  readonly close: () => Promise<void>
}

export async function openPool(url: string): Promise<OpenPostgres> {
  const { Pool } = await import('pg')
  const client = new Pool({ connectionString: url, max: 10, query_timeout: 120_000 })
  return { client, close: () => client.end() }
}

export async function openPostgresJs(url: string): Promise<OpenPostgres> {
  const { default: postgres } = await import('postgres')
  const client = postgres(url, { max: 10, onnotice: () => {} })
  return { client, close: () => client.end() }
}

/** Opens a PostgreSQL database that runs in this process. */
export async function openPglite(options: PGliteOptions = {}): Promise<OpenPostgres> {
  const client = await createPglite(options)
  return { client, close: () => client.close() }
}

const packages = fileURLToPath(new URL('../../node_modules', import.meta.url))

/** Creates an empty database from the files of one that was created before, which takes a fourth of the time. */
export async function createPglite(options: PGliteOptions = {}): Promise<PGlite> {
  // Optimizing the code of PostgreSQL takes longer than the tests.
  setFlagsFromString('--liftoff-only')
  const { PGlite: Database } = await import('@electric-sql/pglite')
  const { version } = JSON.parse(readFileSync(join(packages, '@electric-sql/pglite/package.json'), 'utf8')) as {
    readonly version: string
  }
  const template = join(packages, `.cache/sluice-pglite-${version}.tar`)
  if (existsSync(template)) return Database.create({ ...options, loadDataDir: new Blob([await readFile(template)]) })
  const client = await Database.create(options)
  await mkdir(dirname(template), { recursive: true })
  // Other processes may read and write it at the same time.
  const written = `${template}.${randomUUID()}`
  const files = await client.dumpDataDir('none')
  await writeFile(written, Buffer.from(await files.arrayBuffer()))
  await rename(written, template)
  return client
}
