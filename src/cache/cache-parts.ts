import type { AnswerStore } from '../core/cache-ports.ts'
import { createMemoryAnswerStore } from './answer-store.ts'
import { boundAnswers, boundIndex } from './bounded-parts.ts'
import type { SemanticCacheOptions } from './cache-options.ts'
import type { CandidateSearch } from './candidate-search.ts'
import { createFlatIndex } from './flat-index.ts'
import { hashingEmbedder } from './hashing-embedder.ts'
import { lazyLexicon, type Lexicon } from './lexicon.ts'
import { emptyTallies, type Tallies } from './statistics.ts'
import { isPending } from './timeout.ts'
import { createVectorSearch } from './vector-search.ts'
import { createWordingSearch } from './wording-search.ts'

const DEFAULT_THRESHOLD = 0.95
const DEFAULT_ENTRIES = 1000
const DEFAULT_BYTES = 64 * 1024 * 1024
const DEFAULT_TIMEOUT_MS = 1000

/** The parts that a cache is made of. */
export interface CacheParts {
  readonly options: SemanticCacheOptions
  readonly threshold: number
  readonly timeoutMs: number
  readonly store: AnswerStore
  readonly search: CandidateSearch
  readonly tallies: Tallies
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
            // The entry is gone from the store already, so that a vector left behind finds nothing.
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
 * The offline embedder needs no vectors. A store or an index of the operator does not report removed entries, so there
 * the index is bounded by itself; the memory store bounds it otherwise.
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
