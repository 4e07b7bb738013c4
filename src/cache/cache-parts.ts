import type { AnswerStore } from '../core/cache-ports.ts'
import type { Cancellation } from '../core/async.ts'
import { createMemoryAnswerStore } from './answer-store.ts'
import type { SemanticCacheOptions } from './cache-options.ts'
import { boundAnswers, boundIndex, isPending } from './deadlines.ts'
import { createFlatIndex } from './flat-index.ts'
import type { Difference } from './guard.ts'
import { hashingEmbedder } from './hashing.ts'
import { lazyLexicon, type Lexicon } from './typos.ts'
import { createVectorSearch } from './vector-search.ts'
import { createWordingSearch, type CandidateSearch } from './wording-search.ts'

const DEFAULT_THRESHOLD = 0.95
const DEFAULT_ENTRIES = 1000
const DEFAULT_BYTES = 64 * 1024 * 1024
const DEFAULT_TIMEOUT_MS = 1000

export interface CacheParts {
  readonly options: SemanticCacheOptions
  readonly threshold: number
  readonly timeoutMs: number
  readonly store: AnswerStore
  readonly search: CandidateSearch
  readonly tallies: CacheTallies
  /** Answers that are being stored. */
  readonly writes: Set<Promise<unknown>>
  readonly lexicon: () => Lexicon | Promise<Lexicon>
  readonly pause: () => Promise<void>
}

export function createCacheParts(options: SemanticCacheOptions): CacheParts {
  const { runtime, maxEntries = DEFAULT_ENTRIES, maxBytes = DEFAULT_BYTES, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  const pause = options.pause ?? (() => new Promise<void>((resolve) => void runtime.after(0, resolve)))
  const search = createSearch(options, { pause, timeoutMs, hasComparable: (scope) => store.hasComparable(scope) })
  const store: AnswerStore =
    options.answers === undefined
      ? createMemoryAnswerStore({
          maxEntries,
          maxBytes,
          indexBytes: search.bytesOf,
          onRemove: ({ scope, id, comparable }) => {
            const removed = comparable ? search.remove(scope, id) : undefined
            // Ignored, because a vector without a stored entry is never a hit.
            if (isPending(removed)) removed.catch(() => {})
          },
        })
      : boundAnswers(options.answers, { runtime, timeoutMs })
  return {
    options,
    threshold: options.similarityThreshold ?? DEFAULT_THRESHOLD,
    timeoutMs,
    store,
    search,
    tallies: emptyTallies(),
    writes: new Set(),
    lexicon: lazyLexicon(),
    pause,
  }
}

interface SearchParts extends Pick<CacheParts, 'pause' | 'timeoutMs'> {
  readonly hasComparable: AnswerStore['hasComparable']
}

/**
 * Creates the search for an embedder. The offline embedder needs no vectors. The index has its own limits only with a
 * custom store, because the memory store reports removed entries.
 */
function createSearch(options: SemanticCacheOptions, parts: SearchParts): CandidateSearch {
  const { runtime, embedder = hashingEmbedder(), maxEntries = DEFAULT_ENTRIES, maxBytes = DEFAULT_BYTES } = options
  const isOwn = options.index === undefined && options.answers === undefined
  if (isOwn && embedder === hashingEmbedder()) return createWordingSearch()
  const { timeoutMs, hasComparable, pause } = parts
  const bounds = isOwn ? { maxEntries: Infinity, maxBytes: Infinity } : { maxEntries, maxBytes }
  const { dimensions } = embedder
  const index =
    options.index === undefined
      ? createFlatIndex({ now: runtime.now, pause, dimensions, ...bounds })
      : boundIndex(options.index, { runtime, timeoutMs })
  return createVectorSearch({ embedder, index, runtime, timeoutMs, deferred: isOwn, hasComparable })
}

/** Statistics of the cache. GET /metrics/cache contains some of them. */
export interface CacheStatistics {
  /** hits / totalRequests; 0 before the first look-up. */
  readonly hitRate: number
  /** Number of look-ups, except for requests that do not accept stored answers. */
  readonly totalRequests: number
  readonly hits: number
  readonly misses: number
  /** Number of hits on the same text. */
  readonly exactHits: number
  /** Number of candidates above the threshold that the guard refused, by first difference. */
  readonly refused: Readonly<Partial<Record<Difference | 'verifier', number>>>
  /** Number of look-ups in which an embedder, index, store or verifier failed or was late. */
  readonly failures: number
  readonly entries: number
  readonly bytes: number
}

export interface CacheTallies {
  hits: number
  misses: number
  exactHits: number
  failures: number
  readonly refused: Partial<Record<Difference | 'verifier', number>>
}

export function emptyTallies(): CacheTallies {
  return { hits: 0, misses: 0, exactHits: 0, failures: 0, refused: {} }
}

export function countRefusal({ refused }: CacheTallies, reason: Difference | 'verifier'): void {
  refused[reason] = (refused[reason] ?? 0) + 1
}

export function statisticsOf(
  tallies: CacheTallies,
  size: { readonly entries: number; readonly bytes: number },
): CacheStatistics {
  const { hits, misses, refused } = tallies
  const totalRequests = hits + misses
  const hitRate = totalRequests === 0 ? 0 : hits / totalRequests
  return { hitRate, totalRequests, ...tallies, refused: { ...refused }, ...size }
}

/** Returns the result of `work`, or `otherwise` if it fails. A disconnected caller is not counted as a failure. */
export function attempt<T>(
  tallies: CacheTallies,
  work: () => T | Promise<T>,
  fallback: T,
  cancellation?: Cancellation,
): T | Promise<T> {
  const failed = (): T => {
    tallies.failures += cancellation?.isCancelled === true ? 0 : 1
    return fallback
  }
  try {
    const result = work()
    return isPending(result) ? result.then(undefined, failed) : result
  } catch {
    return failed()
  }
}
