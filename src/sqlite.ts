export { sqliteStore, type SqliteStoreOptions } from './stores/sqlite.ts'
export type { SqliteDatabase, SqliteStatement, SqliteValue } from './stores/sqlite/database.ts'
export type { BulkLimits } from './stores/durable-store.ts'
export type { PoolLimit } from './stores/store-rules.ts'
