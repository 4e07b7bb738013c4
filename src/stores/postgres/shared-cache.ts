import type { AnswerStore } from '../../core/cached-answer.ts'
import type { VectorIndex } from '../../core/ports.ts'
import { checkSchema, postgresStore, type PostgresStoreOptions } from '../postgres.ts'
import { fieldOf, listOf, numberOf, textOf } from '../reply.ts'
import { createStoredAnswers, type StoredAnswersOptions } from '../stored-answers.ts'
import { encodeText } from '../text.ts'
import { checkDimensions, checkVector } from '../vectors.ts'
import { createCallFunction, createRunQuery } from './client.ts'
import { migrateVectors } from './vector-schema.ts'

export interface PostgresAnswerStoreOptions extends StoredAnswersOptions, PostgresStoreOptions {}

export interface PostgresAnswerStore extends AnswerStore {
  /** Creates the schema, or brings it to the newest version. `npx sluice migrate` does the same. */
  migrate(): Promise<void>
}

/** Keeps the answers of the semantic cache in the tables of `postgresStore`, for all processes with the same schema. */
export function postgresAnswerStore(options: PostgresAnswerStoreOptions): PostgresAnswerStore {
  const store = postgresStore(options)
  return { ...createStoredAnswers(store, options, options.now ?? Date.now), migrate: store.migrate }
}

export interface PostgresVectorIndexOptions extends Pick<PostgresStoreOptions, 'client' | 'schema' | 'now'> {
  /** The length of the embedder's vectors. Vectors of another embedder need another schema. @default 1024 */
  readonly dimensions?: number
  /** Maximum number of vectors in one scope. The one that ends first leaves. @default 10,000 */
  readonly maxPerScope?: number
  /** Maximum number of vectors that the requests of one key add. @default 10,000 */
  readonly maxPerKey?: number
}

export interface PostgresVectorIndex extends VectorIndex {
  /** Creates the extension pgvector and the table of the index. */
  migrate(): Promise<void>
}

/** pgvector indexes no longer vectors. */
const MAX_DIMENSIONS = 2_000
const MAX_VECTORS = 10_000

/** Finds near vectors in PostgreSQL with pgvector 0.8 or newer, in one call. */
export function postgresVectorIndex(options: PostgresVectorIndexOptions): PostgresVectorIndex {
  const { client, schema = 'sluice', now, dimensions = 1024 } = options
  const { maxPerScope = MAX_VECTORS, maxPerKey = MAX_VECTORS } = options
  checkSchema(schema)
  checkDimensions(dimensions, MAX_DIMENSIONS)
  const run = createRunQuery(client)
  const call = createCallFunction(run, schema, now)
  const send = (name: string, request: object): Promise<unknown> => call(`${name}_${dimensions}`, request)

  return {
    add: async ({ id, scope, owner = '', vector, expiresAt }) => {
      checkVector(vector, dimensions)
      await send('add_vector', {
        id: encodeText(id),
        scope: encodeText(scope),
        owner: encodeText(owner),
        vector: Array.from(vector),
        ends: Math.floor(expiresAt),
        maxPerScope,
        maxPerKey,
      })
    },
    nearest: async (scope, vector, { least, limit }) => {
      checkVector(vector, dimensions)
      if (limit < 1) return []
      const reply = await send('nearest_vectors', { scope: encodeText(scope), vector: Array.from(vector), limit })
      return listOf(fieldOf(reply, 'neighbors'))
        .map((neighbor) => {
          const [id, similarity] = listOf(neighbor)
          return { id: textOf(id), similarity: numberOf(similarity) }
        })
        .filter(({ similarity }) => similarity >= least)
    },
    remove: async (id) => void (await send('remove_vector', { id: encodeText(id) })),
    clear: async () => void (await send('clear_vectors', {})),
    migrate: () => migrateVectors(run, { schema, dimensions }),
  }
}
