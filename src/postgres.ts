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
