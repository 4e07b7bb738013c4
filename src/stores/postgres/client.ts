import type { BulkLimits } from '../bounds.ts'
import { LATE_MS } from '../reservation-rules.ts'

/** `pg`: a Pool or Client. PGlite has the same method. */
export interface QueryClient {
  query(text: string, parameters: unknown[]): Promise<{ readonly rows: readonly unknown[] }>
}

/** `postgres` (postgres.js). */
export interface UnsafeClient {
  unsafe(text: string, parameters: string[]): PromiseLike<readonly unknown[]>
}

/** A connected client of PostgreSQL, in one of three shapes. */
export type PostgresClient = QueryClient | UnsafeClient

/** Runs one statement and returns its rows. */
export type RunQuery = (text: string, parameters: readonly string[]) => Promise<readonly unknown[]>

export function createRunQuery(client: PostgresClient): RunQuery {
  if ('unsafe' in client) return async (text, parameters) => client.unsafe(text, [...parameters])
  return async (text, parameters) => (await client.query(text, [...parameters])).rows
}

/** Calls a function of the schema. Functions take and return JSON as text, which every driver passes unchanged. */
type CallFunction = (name: string, request: object) => Promise<unknown>

/** Deadlock and serialization failure: the server has undone the step, so it can be sent again. */
const RETRIED = new Set(['40P01', '40001'])
const MAX_TRIES = 5

export function createCallFunction(run: RunQuery, schema: string, now: (() => number) | undefined): CallFunction {
  async function once(name: string, request: object): Promise<unknown> {
    const rows = await run(`SELECT ${schema}.${name}($1::text) AS result`, [JSON.stringify(request)])
    const [row] = rows
    const result = typeof row === 'object' && row !== null ? Reflect.get(row, 'result') : undefined
    return typeof result === 'string' ? JSON.parse(result) : undefined
  }

  return async (name, request) => {
    const timed = now === undefined ? request : { ...request, now: now() }
    for (let tries = 1; ; tries += 1) {
      try {
        return await once(name, timed)
      } catch (error) {
        if (isMissing(error)) throw missingSchema(schema, error)
        if (tries >= MAX_TRIES || !RETRIED.has(codeOf(error))) throw error
      }
    }
  }
}

/** undefined_function and invalid_schema_name. */
function isMissing(error: unknown): boolean {
  return ['42883', '3F000'].includes(codeOf(error))
}

function missingSchema(schema: string, cause: unknown): Error {
  return new Error(
    `The PostgreSQL schema ${schema} is missing or older than this version of sluice. Run "npx sluice migrate", or await store.migrate() at start. A vector index has a migrate() of its own.`,
    { cause },
  )
}

function codeOf(error: unknown): string {
  const code: unknown = typeof error === 'object' && error !== null ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : ''
}

/** Removes expired rows in the background. Reads ignore expired rows, so a failure only delays the removal. */
interface Sweep {
  /** Starts a sweep when the last one was long enough ago. Returns immediately. */
  start(): void
  /** Resolves when no sweep is running. */
  finish(): Promise<void>
}

const INTERVAL_MS = 10_000

export function createSweep(call: CallFunction, limits: BulkLimits): Sweep {
  let startedAt = Date.now()
  let running: Promise<unknown> = Promise.resolve()

  async function sweep(): Promise<void> {
    try {
      await call('sweep', { late: LATE_MS, limits })
      await call('create_partitions', {})
    } catch {}
  }

  return {
    start: () => {
      if (Date.now() - startedAt < INTERVAL_MS) return
      startedAt = Date.now()
      running = sweep()
    },
    finish: async () => void (await running),
  }
}
