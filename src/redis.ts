export {
  type IoredisClient,
  type NodeRedisClient,
  redisAnswerStore,
  redisStore,
  type RedisAnswerStoreOptions,
  type RedisClient,
  type RedisStoreOptions,
  type ScriptArguments,
  type UpstashClient,
} from './stores/redis.ts'
export { redisVectorIndex, type RedisVectorIndexOptions } from './stores/redis/vector-index.ts'
export type { StoredAnswersOptions } from './stores/stored-answers.ts'
export type { BulkLimits } from './stores/durable-store.ts'
export type { PoolLimit } from './stores/store-rules.ts'
