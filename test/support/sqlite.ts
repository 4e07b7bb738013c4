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

type NodeSqlite = { readonly DatabaseSync: new (file: string) => SqliteDatabase & { close(): unknown } }

/** libsql, and `node:sqlite` where this Node has it (22.13 or newer). */
export function sqliteDrivers(): readonly SqliteDriver[] {
  const libsql: SqliteDriver = { name: 'libsql', open: (file) => new Database(file) }
  const node = loadNodeSqlite()
  if (node === undefined) {
    process.stdout.write(
      `Skipped: the node:sqlite driver. Node ${process.version} does not have it; run the tests on Node 22.13 or newer.\n`,
    )
    return [libsql]
  }
  return [libsql, { name: 'node:sqlite', open: (file) => new node.DatabaseSync(file) }]
}

function loadNodeSqlite(): NodeSqlite | undefined {
  try {
    return createRequire(import.meta.url)('node:sqlite') as NodeSqlite
  } catch {
    return undefined
  }
}

/** A directory that `remove` deletes. */
export function temporaryDirectory(): { readonly path: string; readonly remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), 'sluice-store-'))
  return { path, remove: () => existsSync(path) && rmSync(path, { recursive: true }) }
}
