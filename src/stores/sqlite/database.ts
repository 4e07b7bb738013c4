/** A parameter of a statement. */
export type SqliteValue = string | number

/** The end of a row that has none. A number, so that every column has a value and every comparison is plain. */
export const NEVER: number = Number.MAX_SAFE_INTEGER

/** A prepared statement of `node:sqlite`, libsql, better-sqlite3 or `bun:sqlite`. */
export interface SqliteStatement {
  run(...parameters: SqliteValue[]): unknown
  /** Returns the first row as an object; undefined or null when there is none. */
  get(...parameters: SqliteValue[]): unknown
  all(...parameters: SqliteValue[]): unknown[]
}

/** An open database with a synchronous API. */
export interface SqliteDatabase {
  exec(sql: string): unknown
  prepare(sql: string): SqliteStatement
}

export type Row = Readonly<Record<string, unknown>>

/** Runs statements, each prepared once, and groups them into atomic steps. */
export interface Sql {
  run(sql: string, ...parameters: SqliteValue[]): void
  row(sql: string, ...parameters: SqliteValue[]): Row | undefined
  rows(sql: string, ...parameters: SqliteValue[]): readonly Row[]
  /**
   * Runs `work` as one transaction. `BEGIN IMMEDIATE` takes the write lock first: a transaction that upgrades a read
   * lock can fail at once when another process writes, regardless of the busy timeout.
   */
  atomically<result>(work: () => result): result
}

export function createSql(database: SqliteDatabase): Sql {
  const statements = new Map<string, SqliteStatement>()

  function statement(sql: string): SqliteStatement {
    const found = statements.get(sql) ?? database.prepare(sql)
    statements.set(sql, found)
    return found
  }

  function atomically<result>(work: () => result): result {
    database.exec('BEGIN IMMEDIATE')
    try {
      const result = work()
      database.exec('COMMIT')
      return result
    } catch (error) {
      rollBack(database)
      throw error
    }
  }

  return {
    run: (sql, ...parameters) => void statement(sql).run(...parameters),
    row: (sql, ...parameters) => asRow(statement(sql).get(...parameters)),
    rows: (sql, ...parameters) =>
      statement(sql)
        .all(...parameters)
        .map((row) => asRow(row) ?? {}),
    atomically,
  }
}

/** SQLite rolls back by itself after some errors; a second rollback then fails, and the first error matters. */
function rollBack(database: SqliteDatabase): void {
  try {
    database.exec('ROLLBACK')
  } catch {}
}

function asRow(value: unknown): Row | undefined {
  return typeof value === 'object' && value !== null ? { ...value } : undefined
}

/** Reads a column that the schema declares as a number. */
export function numberIn(row: Row | undefined, column: string): number {
  const value = row?.[column]
  return typeof value === 'number' ? value : Number(value ?? 0)
}

/** Reads a column that the schema declares as text. */
export function textIn(row: Row, column: string): string {
  const value = row[column]
  return typeof value === 'string' ? value : ''
}
