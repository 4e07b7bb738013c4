import type { ResponseStore } from '../core/cache.ts'
import { checkOptions, expects, type OptionCheck, optionsOf, withDefaults } from '../core/check-options.ts'
import type { LogEntry, LogQuery, Store } from '../core/store.ts'
import {
  DEFAULT_BULK_LIMITS,
  type BulkLimits,
  decodeText,
  encodeText,
  clientCheck,
  STORE_CHECKS,
  type CallOperation,
  createRemoteCounters,
  createRemoteValues,
  fieldOf,
  toList,
  toNumber,
  toText,
} from './durable-store.ts'
import { migratePostgres, type RunQuery } from './postgres/schema.ts'
import { createStoreClock, type StoreClock, withTime } from './store-rules.ts'
import { RESPONSE_CHECKS, createResponseStore, type ResponseStoreOptions } from './response-store.ts'

/** Options for `postgresStore()`. */
export interface PostgresStoreOptions {
  /** A connected client: a Pool of `pg`, postgres.js, or PGlite. The caller closes it. */
  readonly client: PostgresClient
  /** Schema that contains the tables. Gateways with the same schema share keys, budgets and usage. @default 'sluice' */
  readonly schema?: string | undefined
  /** Limits on the data that requests write. @default 1,000,000 entries and 1 GiB each */
  readonly limits?: Partial<BulkLimits>
  /** Returns the time in milliseconds since 1970. @default the `runtime.now` of the gateway, otherwise the clock of the PostgreSQL server */
  readonly now?: () => number
}

/** A store in PostgreSQL. */
export interface PostgresStore extends Store {
  /** Creates the schema, or upgrades it to the newest version. `npx sluice migrate` does the same. */
  migrate(): Promise<void>
}

const SCHEMA_NAME = /^[a-z_][a-z0-9_]{0,40}$/

export const POSTGRES_CHECKS: Readonly<Record<'client' | 'schema' | 'now', OptionCheck>> = {
  client: clientCheck('a client, such as a Pool of pg'),
  schema: expects(
    'a name of at most 41 lowercase letters, digits and underscores that does not begin with a digit',
    (value) => typeof value === 'string' && SCHEMA_NAME.test(value),
  ),
  now: STORE_CHECKS.now,
}

const CHECK = optionsOf({ ...POSTGRES_CHECKS, limits: STORE_CHECKS.limits }, ['client'])

/**
 * Creates a store in PostgreSQL 14 or newer. Each operation is one function call, so any number of processes can share
 * exact limits and budgets. With the server's default settings, a committed operation survives a power failure.
 *
 * @example
 * const store = postgresStore({ client: pool }) // a Pool of pg, or postgres(url) of postgres.js
 * await store.migrate() // or: npx sluice migrate
 * const gateway = createGateway({ providers: [openai()], store })
 */
export function postgresStore(options: PostgresStoreOptions): PostgresStore {
  checkOptions('postgresStore', options, CHECK)
  const { client, schema = 'sluice' } = options
  const { clock, useClock } = createStoreClock(options.now, () => undefined)
  const limits = withDefaults(DEFAULT_BULK_LIMITS, options.limits)
  const runQuery = createRunQuery(client)
  const callFunction = createCallFunction(runQuery, schema, clock)
  const sweeper = createSweeper(callFunction, limits)
  const call: CallOperation = async (operation, request) => {
    const reply = await callFunction(operation, request)
    if (SWEEP_TRIGGERS.has(operation)) sweeper.start()
    return reply
  }
  return {
    ...createRemoteValues(call, limits),
    ...createRemoteCounters(call, limits),
    entries: async (log, query) =>
      toList(await call('read_entries', { ...toRangeRequest(query), log: encodeText(log) })).map(toLogEntry),
    useClock,
    ping: async () => void (await runQuery('SELECT 1', [])),
    warnings: async () => (await runQuery(FIND_UNSAFE_SETTINGS, [])).map(toWarning),
    close: () => sweeper.finish(),
    migrate: () => migratePostgres(runQuery, schema),
  }
}

const SWEEP_TRIGGERS: ReadonlySet<string> = new Set(['write_value', 'append', 'settle_reservation'])

const FIND_UNSAFE_SETTINGS = `SELECT name FROM pg_settings WHERE name IN ('synchronous_commit', 'fsync') AND setting = 'off'`

function toWarning(row: unknown): string {
  return `The PostgreSQL setting ${toText(fieldOf(row, 'name'))} is off: a host failure can lose the last settled requests. Set it to on.`
}

/** A cursor consists of a transaction id and an entry id, zero-padded, because cursors are sorted as strings. */
const TRANSACTION_DIGITS = 20
const ID_DIGITS = 20
const CURSOR = new RegExp(`^(\\d{${TRANSACTION_DIGITS}})(\\d{${ID_DIGITS}})$`)

function toRangeRequest({ from, to, after = '', limit }: LogQuery): object {
  const [, transactionId = '0', afterId = '0'] = CURSOR.exec(after) ?? []
  return {
    limit,
    afterWriter: transactionId,
    afterId,
    ...(from !== undefined && { from }),
    ...(to !== undefined && { to }),
  }
}

function toLogEntry(row: unknown): LogEntry {
  const [transactionId, id, at, value] = toList(row)
  const cursor = toText(transactionId).padStart(TRANSACTION_DIGITS, '0') + toText(id).padStart(ID_DIGITS, '0')
  return { cursor, at: toNumber(at), value: decodeText(toText(value)) }
}

/** Options for `postgresResponseStore()`. */
export interface PostgresResponseStoreOptions extends ResponseStoreOptions, PostgresStoreOptions {}

/** A PostgreSQL store for the responses of the semantic cache. */
export interface PostgresResponseStore extends ResponseStore {
  /** Creates the schema, or upgrades it to the newest version. `npx sluice migrate` does the same. */
  migrate(): Promise<void>
}

const CHECK_RESPONSES = optionsOf({ ...POSTGRES_CHECKS, ...RESPONSE_CHECKS, limits: STORE_CHECKS.limits }, ['client'])

/**
 * Creates a response store in the tables of `postgresStore`. All processes with the same schema share the responses.
 *
 * @example
 * const responses = postgresResponseStore({ client: pool })
 * const index = postgresVectorIndex({ client: pool })
 * const gateway = createGateway({ providers: [openai()], store: postgresStore({ client: pool }), cache: { responses, index } })
 */
export function postgresResponseStore(options: PostgresResponseStoreOptions): PostgresResponseStore {
  checkOptions('postgresResponseStore', options, CHECK_RESPONSES)
  const { maxEntriesPerKey: _, maxBytesPerKey: __, ...storeOptions } = options
  const store = postgresStore(storeOptions)
  return { ...createResponseStore(store, options, options.now), migrate: store.migrate }
}

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

export function createRunQuery(client: PostgresClient): RunQuery {
  if ('unsafe' in client) return async (text, parameters) => client.unsafe(text, [...parameters])
  return async (text, parameters) => (await client.query(text, [...parameters])).rows
}

/** Functions take and return JSON as text, which no driver converts. */
type CallFunction = (name: string, request: object) => Promise<unknown>

/** Deadlock and serialization failure. The server has rolled back the operation, so a retry is safe. */
const RETRYABLE_CODES = new Set(['40P01', '40001'])
/** undefined_function and invalid_schema_name. */
const MISSING_SCHEMA_CODES = new Set(['42883', '3F000'])
const MAX_ATTEMPTS = 5

export function createCallFunction(run: RunQuery, schema: string, clock: StoreClock<number | undefined>): CallFunction {
  return async (name, request) => {
    const parameter = JSON.stringify(withTime(request, clock.now()))
    for (let attempt = 1; ; attempt += 1) {
      try {
        const [row] = await run(`SELECT ${schema}.${name}($1::text) AS result`, [parameter])
        const result = fieldOf(row, 'result')
        return typeof result === 'string' ? JSON.parse(result) : undefined
      } catch (error) {
        const code = toText(fieldOf(error, 'code'))
        if (MISSING_SCHEMA_CODES.has(code)) throw missingSchemaError(schema, error)
        if (attempt >= MAX_ATTEMPTS || !RETRYABLE_CODES.has(code)) throw error
      }
    }
  }
}

function missingSchemaError(schema: string, cause: unknown): Error {
  return new Error(
    `The PostgreSQL schema ${schema} is missing, or its version differs from this version of sluice. Run "npx sluice migrate", or await store.migrate() at start. For a vector index, await its migrate().`,
    { cause },
  )
}

const SWEEP_INTERVAL_MS = 10_000

/** Failed sweeps are ignored, because reads skip expired rows and the next sweep repeats the work. */
function createSweeper(call: CallFunction, limits: BulkLimits) {
  let startedAt = Date.now()
  let running: Promise<unknown> = Promise.resolve()

  async function sweep(): Promise<void> {
    try {
      await call('sweep', { limits })
      await call('create_partitions', {})
    } catch {}
  }

  return {
    start: (): void => {
      if (Date.now() - startedAt < SWEEP_INTERVAL_MS) return
      startedAt = Date.now()
      running = sweep()
    },
    finish: async (): Promise<void> => void (await running),
  }
}
