export {
  type IoredisClient,
  type NodeRedisClient,
  redisResponseStore,
  redisStore,
  type RedisResponseStoreOptions,
  type RedisClient,
  type RedisStoreOptions,
  type ScriptArguments,
  type UpstashClient,
} from './stores/redis.ts'
export { redisVectorIndex, type RedisVectorIndexOptions } from './stores/redis/vector-index.ts'
export type { ResponseStoreOptions } from './stores/response-store.ts'
export type { BulkLimits } from './stores/durable-store.ts'
export type { PoolLimit } from './stores/store-rules.ts'
