import {
  aFunction,
  checkOptions,
  expects,
  numberFrom,
  objectWith,
  oneOf,
  optionsOf,
  wholeFrom,
  type OptionCheck,
} from '../core/option-checks.ts'
import type { AnswerStore, Embedder, VectorIndex } from '../core/cache-ports.ts'
import type { Runtime } from '../core/ports.ts'
import type { VerifyHit } from './verifier.ts'

export interface SemanticCacheOptions {
  /** @default true */
  readonly enabled?: boolean
  /** Lifetime of an answer, in seconds. @default 3600 */
  readonly ttlSeconds?: number
  /** Lifetime of the answer to a question about the present (today, latest, weather), in seconds. @default 60 */
  readonly freshTtlSeconds?: number
  /** Minimum cosine similarity of a hit, 0.85 to 1; 1 means the same text only. @default 0.95 */
  readonly similarityThreshold?: number
  /** `global` lets every key find the answers of every key. @default 'key' */
  readonly scope?: 'key' | 'global'
  /** Maximum number of entries. When it is reached, the key with most entries loses its oldest. @default 1000 */
  readonly maxEntries?: number
  /** Maximum size of answers and index together, in bytes. @default 64 MiB */
  readonly maxBytes?: number
  /** @default hashingEmbedder(), offline */
  readonly embedder?: Embedder
  /** @default in memory */
  readonly index?: VectorIndex
  /** Where answers are kept; `index` and `answers` of one database are shared by all its processes. @default in memory */
  readonly answers?: AnswerStore
  /**
   * A further check of the best candidate, after the guard. `smallModelVerifier()` also judges candidates that the guard
   * refuses for their wording alone. @default none
   */
  readonly verifyHit?: VerifyHit
  /** Maximum time of each call of the embedder, the index, the answers and the verifier, in milliseconds. @default 1000 */
  readonly timeoutMs?: number
  /** Lets other work run: a search pauses every few milliseconds. @default a timer of 0 ms of the runtime */
  readonly pause?: () => Promise<void>
  readonly runtime: Pick<Runtime, 'now' | 'after'>
}

/** A lower threshold would accept different questions. */
export const MIN_THRESHOLD = 0.85
const YEAR_SECONDS = 366 * 24 * 3600

/** The check of `cache` in the gateway's options. */
export const checkCache: OptionCheck = optionsOf(
  {
    enabled: oneOf(true, false),
    ttlSeconds: expects(`seconds above 0, at most ${YEAR_SECONDS}`, (value) => isWithin(value, YEAR_SECONDS)),
    freshTtlSeconds: expects('seconds above 0', (value) => isWithin(value, Number.POSITIVE_INFINITY)),
    similarityThreshold: numberFrom(MIN_THRESHOLD, 1),
    scope: oneOf('key', 'global'),
    maxEntries: wholeFrom(1),
    maxBytes: wholeFrom(1),
    embedder: objectWith('an embedder, such as openaiEmbedder({ … })', ['dimensions', 'embed']),
    index: objectWith('a vector index, such as redisVectorIndex({ … })', ['add', 'nearest']),
    answers: objectWith('an answer store, such as redisAnswerStore({ … })', ['get', 'put']),
    verifyHit: aFunction('verifyHit(query, entry, call)'),
    timeoutMs: expects('milliseconds above 0', (value) => isWithin(value, Number.POSITIVE_INFINITY)),
  },
  [],
  'false or an object with options',
)

/** Throws `invalid-request` with the path of the wrong option. */
export function checkCacheOptions(given: SemanticCacheOptions): void {
  const { pause: _, runtime: __, ...cache } = given
  checkOptions('createGateway', { cache }, optionsOf({ cache: checkCache }))
}

function isWithin(value: unknown, max: number): boolean {
  return typeof value === 'number' && value > 0 && value <= max
}
