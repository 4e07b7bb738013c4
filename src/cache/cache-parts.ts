import { LRUCache } from 'lru-cache'
import type { Embedder, VectorIndex } from '../core/ports.ts'
import type { SemanticCacheOptions } from './cache-options.ts'
import type { Canonical } from './canonical.ts'
import { createFlatIndex } from './flat-index.ts'
import { hashingEmbedder } from './hashing-embedder.ts'
import { loadEnglish, noLexicon, type Lexicon } from './lexicon.ts'
import { createMemoryShelf, type AnswerShelf, type CachedAnswer } from './shelf.ts'
import { emptyTallies, type Tallies } from './statistics.ts'

const DEFAULT_THRESHOLD = 0.95
const DEFAULT_ENTRIES = 1000
const DEFAULT_BYTES = 64 * 1024 * 1024
/** Canonical forms of stored questions that are kept, for they are compared again and again. */
const KEPT_FORMS = 256

/** What a cache is made of. */
export interface Parts {
  readonly options: SemanticCacheOptions
  readonly threshold: number
  readonly embedder: Embedder
  readonly index: VectorIndex
  readonly shelf: AnswerShelf
  readonly tallies: Tallies
  readonly forms: LRUCache<string, Canonical>
  readonly lexicon: () => Promise<Lexicon>
  readonly pause: () => Promise<void>
  readonly embedderHealth: { failures: number; restsUntil: number }
}

export function partsOf(options: SemanticCacheOptions): Parts {
  const { runtime, embedder = hashingEmbedder(), maxEntries = DEFAULT_ENTRIES, maxBytes = DEFAULT_BYTES } = options
  const pause = options.pause ?? (() => new Promise<void>((resolve) => void runtime.after(0, resolve)))
  const { dimensions } = embedder
  const vectorBytes = dimensions * 4
  const index = options.index ?? createFlatIndex({ now: runtime.now, pause, dimensions, maxEntries, maxBytes })
  const forms = new LRUCache<string, Canonical>({ max: KEPT_FORMS })
  const onRemove = (answer: CachedAnswer): void => {
    forms.delete(answer.text)
    if (answer.comparable) index.remove(answer.id).catch(() => {})
  }
  const shelf = options.shelf ?? createMemoryShelf({ maxEntries, maxBytes, vectorBytes, onRemove })
  const threshold = options.similarityThreshold ?? DEFAULT_THRESHOLD
  const lexicon = lexiconLoader()
  const embedderHealth = { failures: 0, restsUntil: 0 }
  return { options, threshold, embedder, index, shelf, tallies: emptyTallies(), forms, lexicon, pause, embedderHealth }
}

/** Loads the English words when the first slip of the finger may have to be judged. */
function lexiconLoader(): () => Promise<Lexicon> {
  let loading: Promise<Lexicon> | undefined
  return () => (loading ??= loadEnglish().catch(() => noLexicon))
}
