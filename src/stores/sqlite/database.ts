import { fieldOf, toNumber, toText } from '../durable-store.ts'

/** A statement parameter. */
export type SqliteValue = string | number

/** The expiry of a row that never expires: a number, because comparisons with NULL would need a special case. */
export const NEVER: number = Number.MAX_SAFE_INTEGER

/** A prepared statement of `node:sqlite`, libsql, better-sqlite3 or `bun:sqlite`. */
export interface SqliteStatement {
  run(...parameters: SqliteValue[]): unknown
  /** Returns the first row as an object. Returns undefined or null if there is none. */
  get(...parameters: SqliteValue[]): unknown
  all(...parameters: SqliteValue[]): unknown[]
}

/** An open database with a synchronous API. */
export interface SqliteDatabase {
  exec(sql: string): unknown
  prepare(sql: string): SqliteStatement
}

export interface Sql {
  run(sql: string, ...parameters: SqliteValue[]): void
  row(sql: string, ...parameters: SqliteValue[]): unknown
  rows(sql: string, ...parameters: SqliteValue[]): readonly unknown[]
  /** Takes the write lock first, because upgrading a read lock fails without waiting while another process writes. */
  atomically<Result>(work: () => Result): Result
}

export function createSql(database: SqliteDatabase): Sql {
  const statements = new Map<string, SqliteStatement>()

  function prepare(sql: string): SqliteStatement {
    const statement = statements.get(sql) ?? database.prepare(sql)
    statements.set(sql, statement)
    return statement
  }

  function atomically<Result>(work: () => Result): Result {
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
    run: (sql, ...parameters) => void prepare(sql).run(...parameters),
    row: (sql, ...parameters) => prepare(sql).get(...parameters) ?? undefined,
    rows: (sql, ...parameters) => prepare(sql).all(...parameters),
    atomically,
  }
}

/** Ignores errors, because SQLite rolls back automatically after some errors, and a second rollback fails. */
function rollBack(database: SqliteDatabase): void {
  try {
    database.exec('ROLLBACK')
  } catch {}
}

export function numberIn(row: unknown, column: string): number {
  return toNumber(fieldOf(row, column))
}

export function textIn(row: unknown, column: string): string {
  return toText(fieldOf(row, column))
}

/** Entry n upgrades a file from `user_version` n to n + 1. Released entries must not change. */
const MIGRATIONS: readonly string[] = [
  `
  CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    pool TEXT NOT NULL,
    share TEXT NOT NULL,
    expires_at INTEGER NOT NULL
  );
  CREATE INDEX entries_by_share ON entries (pool, share, id);
  CREATE INDEX entries_by_end ON entries (expires_at);

  CREATE TABLE log_entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    log TEXT NOT NULL,
    at INTEGER NOT NULL,
    value TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    share TEXT NOT NULL,
    expires_at INTEGER NOT NULL
  );
  CREATE INDEX log_entries_by_log ON log_entries (log, id);
  CREATE INDEX log_entries_by_share ON log_entries (share, id);
  CREATE INDEX log_entries_by_end ON log_entries (expires_at);

  CREATE TABLE shares (
    pool TEXT NOT NULL,
    share TEXT NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (pool, share)
  ) WITHOUT ROWID;
  CREATE INDEX shares_by_size ON shares (pool, bytes);
  CREATE TABLE pools (pool TEXT PRIMARY KEY, entries INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
  INSERT INTO pools VALUES ('durable', 0, 0), ('owned', 0, 0), ('expiring', 0, 0), ('logs', 0, 0);

  ${countingTriggers('entries', (row) => `${row}.pool`)}
  ${countingTriggers('log_entries', () => "'logs'")}

  CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    spent INTEGER NOT NULL,
    held INTEGER NOT NULL,
    ends_at INTEGER NOT NULL
  ) WITHOUT ROWID;
  CREATE INDEX counters_by_end ON counters (ends_at);
  CREATE TABLE tickets (name TEXT PRIMARY KEY, lapses_at INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX tickets_by_lapse ON tickets (lapses_at);
  CREATE TABLE holds (
    ticket TEXT NOT NULL,
    counter TEXT NOT NULL,
    amount INTEGER NOT NULL,
    lapses_at INTEGER NOT NULL,
    PRIMARY KEY (ticket, counter)
  ) WITHOUT ROWID;
  CREATE INDEX holds_by_counter ON holds (counter);
  CREATE INDEX holds_by_lapse ON holds (lapses_at);

  CREATE TABLE tallies (name TEXT PRIMARY KEY, amounts TEXT NOT NULL, ends_at INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX tallies_by_end ON tallies (ends_at);
  `,
  // Version 1 called a reservation a ticket.
  `
  ALTER TABLE tickets RENAME TO reservations;
  ALTER TABLE reservations RENAME COLUMN name TO id;
  ALTER TABLE reservations RENAME COLUMN lapses_at TO expires_at;
  DROP INDEX tickets_by_lapse;
  CREATE INDEX reservations_by_expiry ON reservations (expires_at);
  ALTER TABLE holds RENAME COLUMN ticket TO reservation;
  ALTER TABLE holds RENAME COLUMN lapses_at TO expires_at;
  DROP INDEX holds_by_lapse;
  CREATE INDEX holds_by_expiry ON holds (expires_at);
  `,
]

function countingTriggers(table: string, poolOf: (row: 'NEW' | 'OLD') => string): string {
  return `
  CREATE TRIGGER ${table}_added AFTER INSERT ON ${table} BEGIN
    INSERT INTO shares VALUES (${poolOf('NEW')}, NEW.share, 1, NEW.bytes)
      ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
    UPDATE pools SET entries = entries + 1, bytes = bytes + NEW.bytes WHERE pool = ${poolOf('NEW')};
  END;
  CREATE TRIGGER ${table}_removed AFTER DELETE ON ${table} BEGIN
    UPDATE shares SET entries = entries - 1, bytes = bytes - OLD.bytes
      WHERE pool = ${poolOf('OLD')} AND share = OLD.share;
    DELETE FROM shares WHERE pool = ${poolOf('OLD')} AND share = OLD.share AND entries = 0;
    UPDATE pools SET entries = entries - 1, bytes = bytes - OLD.bytes WHERE pool = ${poolOf('OLD')};
  END;`
}

export function migrateSqlite(sql: Sql, exec: (script: string) => unknown): void {
  if (readVersion(sql) === MIGRATIONS.length) return
  sql.atomically(() => {
    const version = readVersion(sql)
    if (version > MIGRATIONS.length) {
      throw new Error(
        `The database file has schema version ${version}, and this version of sluice supports at most version ${MIGRATIONS.length}. Update sluice, or use another file.`,
      )
    }
    for (const script of MIGRATIONS.slice(version)) exec(script)
    exec(`PRAGMA user_version = ${MIGRATIONS.length}`)
  })
}

function readVersion(sql: Sql): number {
  return numberIn(sql.row('PRAGMA user_version'), 'user_version')
}
