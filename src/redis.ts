/**
 * A Redis store that any number of processes can share.
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
export { redisAnswerStore, redisStore, type RedisAnswerStoreOptions, type RedisStoreOptions } from './stores/redis.ts'
export { redisVectorIndex, type RedisVectorIndexOptions } from './stores/redis/vector-index.ts'
export type { StoredAnswersOptions } from './stores/stored-answers.ts'
export type { IoredisClient, NodeRedisClient, RedisClient, UpstashClient } from './stores/redis/client.ts'
export type { BulkLimits } from './stores/durable-store.ts'
export type { PoolLimit } from './stores/store-rules.ts'
