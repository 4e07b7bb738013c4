import { PGlite } from '@electric-sql/pglite'
import { Pool } from 'pg'
import postgres from 'postgres'
import type { PostgresClient } from '../../src/postgres.ts'

export interface OpenPostgres {
  readonly client: PostgresClient
  readonly close: () => Promise<void>
}

export async function openPool(url: string): Promise<OpenPostgres> {
  const client = new Pool({ connectionString: url, max: 10, query_timeout: 120_000 })
  return { client, close: () => client.end() }
}

export async function openPostgresJs(url: string): Promise<OpenPostgres> {
  const client = postgres(url, { max: 10, onnotice: () => {} })
  return { client, close: () => client.end() }
}

/** Opens a PostgreSQL database that runs in this process. */
export async function openPglite(): Promise<OpenPostgres> {
  const client = await PGlite.create()
  return { client, close: () => client.close() }
}
