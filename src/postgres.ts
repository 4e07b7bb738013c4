/**
 * A PostgreSQL store that any number of processes can share.
 *
 * ```ts
 * import { Pool } from 'pg'
 * import { createGateway } from 'sluice'
 * import { postgresStore } from 'sluice/postgres'
 *
 * const client = new Pool({ connectionString, query_timeout: 2_000, connectionTimeoutMillis: 2_000 })
 * const store = postgresStore({ client })
 * await store.migrate()
 * const gateway = createGateway({ providers, store })
 * ```
 *
 * @module
 */
export {
  postgresAnswerStore,
  postgresStore,
  type PostgresAnswerStore,
  type PostgresAnswerStoreOptions,
  type PostgresStore,
  type PostgresStoreOptions,
} from './stores/postgres.ts'
export {
  postgresVectorIndex,
  type PostgresVectorIndex,
  type PostgresVectorIndexOptions,
} from './stores/postgres/vector-index.ts'
export type { StoredAnswersOptions } from './stores/stored-answers.ts'
export type { PostgresClient, QueryClient, UnsafeClient } from './stores/postgres.ts'
export type { BulkLimits } from './stores/durable-store.ts'
export type { PoolLimit } from './stores/store-rules.ts'
