import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Database from 'libsql'
import type { SqliteDatabase } from '../../src/sqlite.ts'

export interface SqliteDriver {
  readonly name: string
  readonly open: (file: string) => SqliteDatabase & { close(): unknown }
}

type OpenDatabase = new (file: string) => SqliteDatabase & { close(): unknown }
type NodeSqlite = { readonly DatabaseSync: OpenDatabase }

/**
 * Returns libsql, and on Node 22 or newer better-sqlite3, whose binary crashes older versions, and `node:sqlite` if
 * available.
 */
export function sqliteDrivers(): readonly SqliteDriver[] {
  const libsql: SqliteDriver = { name: 'libsql', open: (file) => new Database(file) }
  if (Number.parseInt(process.versions.node, 10) < 22) {
    process.stdout.write(
      `Skipped: better-sqlite3 and node:sqlite. They need Node 22 or newer, and this is ${process.version}.\n`,
    )
    return [libsql]
  }
  const BetterSqlite = createRequire(import.meta.url)('better-sqlite3') as OpenDatabase
  const better: SqliteDriver = { name: 'better-sqlite3', open: (file) => new BetterSqlite(file) }
  const node = loadNodeSqlite()
  if (node === undefined) {
    process.stdout.write(
      `Skipped: the node:sqlite driver. Node ${process.version} does not have it; run the tests on Node 22.13 or newer.\n`,
    )
    return [libsql, better]
  }
  return [libsql, better, { name: 'node:sqlite', open: (file) => new node.DatabaseSync(file) }]
}

function loadNodeSqlite(): NodeSqlite | undefined {
  try {
    return createRequire(import.meta.url)('node:sqlite') as NodeSqlite
  } catch {
    return undefined
  }
}

/** Creates a directory that `remove` deletes. */
export function temporaryDirectory(): { readonly path: string; readonly remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), 'sluice-store-'))
  return { path, remove: () => existsSync(path) && rmSync(path, { recursive: true }) }
}
