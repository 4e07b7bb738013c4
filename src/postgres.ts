export {
  postgresResponseStore,
  postgresStore,
  type PostgresResponseStore,
  type PostgresResponseStoreOptions,
  type PostgresStore,
  type PostgresStoreOptions,
} from './stores/postgres.ts'
export {
  postgresVectorIndex,
  type PostgresVectorIndex,
  type PostgresVectorIndexOptions,
} from './stores/postgres/vector-index.ts'
export type { ResponseStoreOptions } from './stores/response-store.ts'
export type { PostgresClient, QueryClient, UnsafeClient } from './stores/postgres.ts'
export type { BulkLimits } from './stores/durable-store.ts'
export type { PoolLimit } from './stores/store-rules.ts'
