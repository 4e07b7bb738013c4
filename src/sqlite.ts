/**
 * A store in one SQLite file. The data survives restarts, and all processes on one host can share the file.
 *
 * ```ts
 * import Database from 'libsql'
 * import { createGateway } from 'sluice'
 * import { sqliteStore } from 'sluice/sqlite'
 *
 * const gateway = createGateway({ providers, store: sqliteStore({ database: new Database('sluice.db') }) })
 * ```
 *
 * @module
 */
export { sqliteStore, type SqliteStoreOptions } from './stores/sqlite.ts'
export type { SqliteDatabase, SqliteStatement, SqliteValue } from './stores/sqlite/database.ts'
export type { BulkLimits } from './stores/durable-store.ts'
export type { PoolLimit } from './stores/store-rules.ts'
