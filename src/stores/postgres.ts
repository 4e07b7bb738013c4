import {
  type Level,
  type LogEntry,
  type LogQuery,
  type ReserveRequest,
  type ReserveResult,
  type Settlement,
  type Store,
  type WriteOptions,
  quotaExceeded,
} from '../core/store.ts'
import { checkOptions, expects, optionsOf, type OptionCheck } from '../core/option-checks.ts'
import { BULK_LIMITS, STORE_CHECKS, storeFull, type BulkLimits } from './bounds.ts'
import { createCallFunction, createRunQuery, createSweep, type PostgresClient } from './postgres/client.ts'
import { migratePostgres } from './postgres/schema.ts'
import {
  claimRequest,
  decodeText,
  encodeText,
  entryRequest,
  fieldOf,
  listOf,
  numberOf,
  settlementRequest,
  textOf,
  valueRequest,
} from './wire.ts'
import { checkAmount, checkClaims, endedCounter, takenReservationId } from './reservation-rules.ts'

/** Options of `postgresStore()`. */
export interface PostgresStoreOptions {
  /** A connected client: a Pool of `pg`, postgres.js, or PGlite. The caller closes it. */
  readonly client: PostgresClient
  /** The schema of the tables. Gateways with the same schema share keys, budgets and usage. @default 'sluice' */
  readonly schema?: string
  /** Limits of batches, recordings and audit records; keys and budgets have none. @default 1,000,000 entries, 1 GiB each */
  readonly limits?: Partial<BulkLimits>
  /** Milliseconds since 1970. @default the clock of the PostgreSQL server, one for all processes */
  readonly now?: () => number
}

/** A store in PostgreSQL. */
export interface PostgresStore extends Store {
  /** Creates the schema, or brings it to the newest version. `npx sluice migrate` does the same. */
  migrate(): Promise<void>
}

const SCHEMA_NAME = /^[a-z_][a-z0-9_]{0,40}$/

/** Checks of options that the store, the index and the answer store share. */
export const POSTGRES_CHECKS: Readonly<Record<'client' | 'schema' | 'now', OptionCheck>> = {
  client: expects(
    'a client, such as a Pool of pg',
    (value) => typeof value === 'object' || typeof value === 'function',
  ),
  schema: expects(
    'lower-case letters, digits and underscores',
    (value) => typeof value === 'string' && SCHEMA_NAME.test(value),
  ),
  now: STORE_CHECKS.now,
}

const CHECK = optionsOf({ ...POSTGRES_CHECKS, limits: STORE_CHECKS.limits }, ['client'])

/**
 * Creates a store in PostgreSQL 14 or newer. Each step is one call of one function, so any number of processes share
 * limits and budgets exactly. A committed step survives a power failure.
 */
export function postgresStore(options: PostgresStoreOptions): PostgresStore {
  checkOptions('postgresStore', options, CHECK)
  const { client, schema = 'sluice', now } = options
  const limits = { ...BULK_LIMITS, ...options.limits }
  const runQuery = createRunQuery(client)
  const call = createCallFunction(runQuery, schema, now)
  const sweep = createSweep(call, limits)

  async function write(
    key: string,
    value: string | undefined,
    how: WriteOptions = {},
    expectation: object = {},
  ): Promise<unknown> {
    const reply = await call('write_value', { ...valueRequest(key, value, how, limits), ...expectation })
    sweep.start()
    if (fieldOf(reply, 'full') === true) throw how.quota === undefined ? storeFull() : quotaExceeded(how.quota)
    return reply
  }

  async function reserve(request: ReserveRequest): Promise<ReserveResult> {
    checkClaims(request)
    const { reservationId, claims, least, expiresAfterMs } = request
    const reply = await call('reserve', {
      ticket: encodeText(reservationId),
      claims: claims.map(claimRequest),
      lapsesAfter: Math.ceil(expiresAfterMs),
      ...(least !== undefined && { least }),
    })
    const error = fieldOf(reply, 'error')
    if (error === 'taken') throw takenReservationId()
    if (error === 'ended') throw endedCounter(decodeText(textOf(fieldOf(reply, 'counter'))))
    const levels = listOf(fieldOf(reply, 'levels')).map(numberOf)
    const refused = fieldOf(reply, 'refused')
    if (refused !== undefined) return { accepted: false, refused: numberOf(refused), levels }
    return { accepted: true, granted: numberOf(fieldOf(reply, 'granted')), levels }
  }

  async function settle(settlement: Settlement): Promise<boolean> {
    for (const { counter, amount } of settlement.charges) checkAmount(counter, amount)
    const reply = await call('settle', settlementRequest(settlement, limits))
    sweep.start()
    return fieldOf(reply, 'settled') === true
  }

  async function list(prefix: string, after: string | undefined, limit: number): Promise<readonly string[]> {
    const start = encodeText(prefix)
    const reply = await call('list_keys', {
      prefix: start,
      limit,
      ...(after !== undefined && { after: encodeText(after) }),
    })
    const keys = listOf(reply).map(textOf)
    const end = keys.findIndex((key) => !key.startsWith(start))
    return keys.slice(0, end === -1 ? keys.length : end).map(decodeText)
  }

  return {
    get: async (key) => {
      const value = fieldOf(await call('read_value', { key: encodeText(key) }), 'value')
      return value === undefined ? undefined : decodeText(textOf(value))
    },
    set: async (key, value, how) => void (await write(key, value, how)),
    swap: async (key, expected, value, how) => {
      const expectation = expected === undefined ? {} : { expected: encodeText(expected) }
      return fieldOf(await write(key, value, how, { swaps: true, ...expectation }), 'done') === true
    },
    delete: async (key) => fieldOf(await write(key, undefined), 'found') === true,
    list: (prefix, { after, limit }) => list(prefix, after, limit),
    reserve,
    settle,
    levels: async (names) => listOf(await call('read_levels', { counters: names.map(encodeText) })).map(levelIn),
    tallies: async (names) => listOf(await call('read_tallies', { names: names.map(encodeText) })).map(amountsIn),
    append: async (log, entry) => {
      await call('append', { entries: [log].flat().map((one) => entryRequest({ ...entry, log: one }, limits)) })
      sweep.start()
    },
    entries: async (log, query) =>
      listOf(await call('read_entries', { ...entriesRequest(query), log: encodeText(log) })).map(entryIn),
    ping: async () => void (await runQuery('SELECT 1', [])),
    warnings: async () => settingsAtRisk(await runQuery(RISKS, [])),
    close: () => sweep.finish(),
    migrate: () => migratePostgres(runQuery, schema),
  }
}

/** Reads the settings that can cause the loss of a committed step. */
const RISKS = `SELECT name AS risk FROM pg_settings WHERE name IN ('synchronous_commit', 'fsync') AND setting = 'off'`

function settingsAtRisk(rows: readonly unknown[]): readonly string[] {
  return rows.map(
    (row) =>
      `${textOf(fieldOf(row, 'risk'))} of PostgreSQL is off: a failure of its host can lose the last settled requests. Set it to on.`,
  )
}

/** Digits of the two parts of a cursor, so that cursors compare as text: the transaction and the entry. */
const WRITER_DIGITS = 20
const ID_DIGITS = 20
const CURSOR = new RegExp(`^(\\d{${WRITER_DIGITS}})(\\d{${ID_DIGITS}})$`)

/** An unknown cursor starts from the beginning. */
function entriesRequest({ from, to, after = '', limit }: LogQuery): object {
  const [, afterWriter = '0', afterId = '0'] = CURSOR.exec(after) ?? []
  return { limit, afterWriter, afterId, ...(from !== undefined && { from }), ...(to !== undefined && { to }) }
}

function entryIn(row: unknown): LogEntry {
  const [writer, id, at, value] = listOf(row)
  const cursor = textOf(writer).padStart(WRITER_DIGITS, '0') + textOf(id).padStart(ID_DIGITS, '0')
  return { cursor, at: numberOf(at), value: decodeText(textOf(value)) }
}

function levelIn(row: unknown): Level {
  const [spent = 0, held = 0] = listOf(row).map(numberOf)
  return { spent, held }
}

function amountsIn(row: unknown): Readonly<Record<string, number>> {
  const fields = typeof row === 'object' && row !== null ? Object.entries(row) : []
  return Object.fromEntries(fields.map(([field, amount]) => [decodeText(field), numberOf(amount)]))
}
