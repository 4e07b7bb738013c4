import { GatewayError } from '../core/errors.ts'
import type { AnswerStore } from '../core/cached-answer.ts'
import type { Embedder, Runtime, VectorIndex } from '../core/ports.ts'
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

/** Throws `invalid-request` with the name of the wrong option. */
export function checkCacheOptions(options: SemanticCacheOptions): void {
  const { ttlSeconds = 1, freshTtlSeconds = 1, maxEntries = 1, maxBytes = 1, timeoutMs = 1 } = options
  const { similarityThreshold = 1, scope = 'key' } = options
  if (!(similarityThreshold >= MIN_THRESHOLD && similarityThreshold <= 1)) {
    throw wrong('similarityThreshold', similarityThreshold, `a number from ${MIN_THRESHOLD} to 1`)
  }
  if (!(ttlSeconds > 0 && ttlSeconds <= YEAR_SECONDS))
    throw wrong('ttlSeconds', ttlSeconds, 'seconds, above 0, a year at most')
  if (!(freshTtlSeconds > 0)) throw wrong('freshTtlSeconds', freshTtlSeconds, 'seconds, above 0')
  if (!isCount(maxEntries)) throw wrong('maxEntries', maxEntries, 'a whole number of at least 1')
  if (!isCount(maxBytes)) throw wrong('maxBytes', maxBytes, 'a whole number of at least 1')
  if (!(timeoutMs > 0)) throw wrong('timeoutMs', timeoutMs, 'milliseconds, above 0')
  if (scope !== 'key' && scope !== 'global') throw wrong('scope', scope, "'key' or 'global'")
}

function isCount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 1
}

function wrong(option: string, value: unknown, expected: string): GatewayError {
  return new GatewayError('invalid-request', `cache.${option} is ${String(value)}; expected ${expected}.`, {
    param: `cache.${option}`,
  })
}
