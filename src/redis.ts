/**
 * A store in Redis, for any number of processes.
 *
 * ```ts
 * import { Redis } from 'ioredis'
 * import { createGateway } from 'sluice'
 * import { redisStore } from 'sluice/redis'
 *
 * const client = new Redis(url, { enableOfflineQueue: false })
 * const gateway = createGateway({ providers, store: redisStore({ client }) })
 * ```
 *
 * @module
 */
export { redisStore, type RedisStoreOptions } from './stores/redis.ts'
export {
  redisAnswerStore,
  redisVectorIndex,
  type RedisAnswerStoreOptions,
  type RedisVectorIndexOptions,
} from './stores/redis/shared-cache.ts'
export type { StoredAnswersOptions } from './stores/stored-answers.ts'
export type { IoredisClient, NodeRedisClient, RedisClient, UpstashClient } from './stores/redis/client.ts'
export type { BulkLimits, PoolLimit } from './stores/bounds.ts'
