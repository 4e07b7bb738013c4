import type { AnswerStore } from '../../core/cached-answer.ts'
import { lazy } from '../../core/lazy.ts'
import type { VectorIndex } from '../../core/ports.ts'
import { redisStore, type RedisStoreOptions } from '../redis.ts'
import { fieldOf, listOf, numberOf, textOf } from '../reply.ts'
import { createStoredAnswers, type StoredAnswersOptions } from '../stored-answers.ts'
import { checkDimensions, checkVector } from '../vectors.ts'
import { createRunScript, type Script } from './client.ts'
import { createContext } from './context.ts'
import { createVectorMirror, PAGE, writeVector } from './vector-mirror.ts'
import {
  ADD_VECTOR,
  CLEAR_VECTORS,
  HAS_VECTOR_SETS,
  NEAREST_VECTORS,
  READ_VECTORS,
  REMOVE_VECTOR,
} from './vector-scripts.ts'

export interface RedisAnswerStoreOptions
  extends StoredAnswersOptions, Pick<RedisStoreOptions, 'client' | 'prefix' | 'limits' | 'now'> {}

/** Keeps the answers of the semantic cache in Redis, for all processes with the same prefix. */
export function redisAnswerStore(options: RedisAnswerStoreOptions): AnswerStore {
  return createStoredAnswers(redisStore(options), options, options.now ?? Date.now)
}

export interface RedisVectorIndexOptions extends Pick<RedisStoreOptions, 'client' | 'prefix' | 'now'> {
  /** The length of the embedder's vectors. Vectors of another embedder need another prefix. @default 1024 */
  readonly dimensions?: number
  /** Maximum number of vectors in one scope. The one that ends first leaves. @default 10,000; 256 without vector sets */
  readonly maxPerScope?: number
  /** Maximum number of vectors that the requests of one key add. @default 10,000 */
  readonly maxPerKey?: number
}

const MAX_DIMENSIONS = 4096
const MAX_VECTORS = 10_000
/** Without vector sets each process compares copies of them. */
const MAX_SCANNED = 256

/**
 * Finds near vectors in Redis, in one call. Each scope has a vector set of its own (Redis 8). A server without them
 * keeps at most 256 vectors per scope, which each process copies and compares itself.
 */
export function redisVectorIndex(options: RedisVectorIndexOptions): VectorIndex {
  const { client, prefix = 'sluice', now, dimensions = 1024, maxPerKey = MAX_VECTORS } = options
  checkDimensions(dimensions, MAX_DIMENSIONS)
  const limits = { entries: 0, bytes: 0 }
  const { run } = createContext({
    runScript: createRunScript(client),
    prefix,
    limits: { owned: limits, expiring: limits, logs: limits },
    isSharded: false,
    now,
  })
  const hasSets = lazy(async () => fieldOf(await run(HAS_VECTOR_SETS, undefined, {}), 'sets') === true)
  const send = async (script: Script, request: object): Promise<unknown> =>
    run(script, undefined, { ...request, dimensions, scans: !(await hasSets()) })
  const mirror = createVectorMirror((scope, after) => send(READ_VECTORS, { scope, after, page: PAGE }), dimensions)

  async function nearestInSet(scope: string, vector: Float32Array, limit: number): ReturnType<typeof mirror.nearest> {
    const reply = await send(NEAREST_VECTORS, { scope, vector: Array.from(vector), limit })
    return listOf(fieldOf(reply, 'neighbors')).map((neighbor) => {
      const [id, score] = listOf(neighbor)
      // A score is between 0 and 1.
      return { id: textOf(id), similarity: 2 * numberOf(score) - 1 }
    })
  }

  return {
    add: async ({ id, scope, owner = '', vector, expiresAt }) => {
      checkVector(vector, dimensions)
      const isSet = await hasSets()
      const maxPerScope = options.maxPerScope ?? (isSet ? MAX_VECTORS : MAX_SCANNED)
      const written = isSet ? Array.from(vector) : writeVector(vector)
      await send(ADD_VECTOR, { id, scope, owner, vector: written, ends: expiresAt, maxPerScope, maxPerKey })
    },
    nearest: async (scope, vector, { least, limit }) => {
      checkVector(vector, dimensions)
      if (limit < 1) return []
      const search = (await hasSets()) ? nearestInSet : mirror.nearest
      return (await search(scope, vector, limit)).filter(({ similarity }) => similarity >= least)
    },
    remove: async (id) => void (await send(REMOVE_VECTOR, { id })),
    clear: async () => {
      let cursor = '0'
      do cursor = textOf(fieldOf(await send(CLEAR_VECTORS, { cursor }), 'cursor'))
      while (cursor !== '0')
    },
    warnings: async () =>
      (await hasSets())
        ? []
        : [
            `Redis has no vector sets (Redis 8 has them): redisVectorIndex compares at most ${options.maxPerScope ?? MAX_SCANNED} questions per scope.`,
          ],
  }
}
