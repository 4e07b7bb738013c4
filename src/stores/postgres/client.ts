import type { BulkLimits } from '../durable-store.ts'

/** A Pool or Client of `pg`, or a PGlite database. */
export interface QueryClient {
  query(text: string, parameters: unknown[]): Promise<{ readonly rows: readonly unknown[] }>
}

/** A client of `postgres` (postgres.js). */
export interface UnsafeClient {
  unsafe(text: string, parameters: string[]): PromiseLike<readonly unknown[]>
}

/** A connected PostgreSQL client. */
export type PostgresClient = QueryClient | UnsafeClient

/** Runs one statement. Resolves with its rows. */
export type RunQuery = (text: string, parameters: readonly string[]) => Promise<readonly unknown[]>

export function createRunQuery(client: PostgresClient): RunQuery {
  if ('unsafe' in client) return async (text, parameters) => client.unsafe(text, [...parameters])
  return async (text, parameters) => (await client.query(text, [...parameters])).rows
}

/** Calls a function of the schema. Functions take and return JSON as text, which no driver converts. */
type CallFunction = (name: string, request: object) => Promise<unknown>

/**
 * SQLSTATE codes of a deadlock and a serialization failure. The server has rolled back the step, so it can be repeated.
 */
const RETRYABLE = new Set(['40P01', '40001'])
const MAX_ATTEMPTS = 5

export function createCallFunction(run: RunQuery, schema: string, now: (() => number) | undefined): CallFunction {
  async function callOnce(name: string, request: object): Promise<unknown> {
    const rows = await run(`SELECT ${schema}.${name}($1::text) AS result`, [JSON.stringify(request)])
    const [row] = rows
    const result = typeof row === 'object' && row !== null ? Reflect.get(row, 'result') : undefined
    return typeof result === 'string' ? JSON.parse(result) : undefined
  }

  return async (name, request) => {
    const timed = now === undefined ? request : { ...request, now: now() }
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await callOnce(name, timed)
      } catch (error) {
        if (isMissing(error)) throw missingSchema(schema, error)
        if (attempt >= MAX_ATTEMPTS || !RETRYABLE.has(codeOf(error))) throw error
      }
    }
  }
}

/** SQLSTATE codes of undefined_function and invalid_schema_name. */
const MISSING = new Set(['42883', '3F000'])

function isMissing(error: unknown): boolean {
  return MISSING.has(codeOf(error))
}

function missingSchema(schema: string, cause: unknown): Error {
  return new Error(
    `The PostgreSQL schema ${schema} is missing, or its version differs from this version of sluice. Run "npx sluice migrate", or await store.migrate() at start. For a vector index, await its migrate().`,
    { cause },
  )
}

function codeOf(error: unknown): string {
  const code: unknown = typeof error === 'object' && error !== null ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : ''
}

/** Removes expired rows in the background. Reads ignore expired rows, so a failure only delays the removal. */
interface Sweep {
  /** Starts a sweep, unless one started within the last 10 seconds. */
  start(): void
  /** Resolves when no sweep is running. */
  finish(): Promise<void>
}

const SWEEP_INTERVAL_MS = 10_000

export function createSweep(call: CallFunction, limits: BulkLimits): Sweep {
  let startedAt = Date.now()
  let running: Promise<unknown> = Promise.resolve()

  async function sweep(): Promise<void> {
    try {
      await call('sweep', { limits })
      await call('create_partitions', {})
    } catch {}
  }

  return {
    start: () => {
      if (Date.now() - startedAt < SWEEP_INTERVAL_MS) return
      startedAt = Date.now()
      running = sweep()
    },
    finish: async () => void (await running),
  }
}
