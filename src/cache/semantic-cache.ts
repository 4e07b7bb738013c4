import { LRUCache } from 'lru-cache'
import type { AnswerStore } from '../core/cache-ports.ts'
import { type Cancellation, isThenable, type MaybePromise } from '../core/async.ts'
import { ZERO } from '../core/money.ts'
import type { Prompt } from '../core/prompt.ts'
import { createMemoryAnswerStore } from './answer-store.ts'
import { cacheKeyOf } from './cache-key.ts'
import { createMiss, UNCACHEABLE, type CacheMiss } from './cache-miss.ts'
import {
  checkCacheOptions,
  NO_DIRECTIVES,
  type CacheDirectives,
  type SemanticCacheOptions,
  type VerifierModel,
} from './cache-options.ts'
import { guardAnswerStore, guardVectorIndex, whenReady } from './deadlines.ts'
import { attempt, findAnswer, type CacheHit, type CacheContext, type CacheTallies } from './find-answer.ts'
import { createFlatIndex, createVectorSearch } from './vector-search.ts'
import type { Difference } from './guard.ts'
import { hashingEmbedder } from './hashing.ts'
import { lazyLexicon } from './typos.ts'
import { createWordingSearch, type CandidateSearch, type Lookup } from './wording-search.ts'

export interface CacheQuery {
  /** Includes the model's default settings, which are part of the cache key. */
  readonly prompt: Prompt
  readonly keyId: string
  /** The model name as requested. */
  readonly modelName: string
  /** The header `anthropic-beta`, which is forwarded to the upstream. @default none */
  readonly beta?: string | undefined
  /** @default read and write */
  readonly directives?: CacheDirectives
  readonly cancellation?: Cancellation
  readonly requestId?: string
  /** The small model for a verifier. @default none */
  readonly smallModel?: () => VerifierModel | undefined
}

/** Tier 1. Methods return promises only if a cache component is asynchronous. A component failure counts as a miss. */
export interface SemanticCache {
  lookUp(query: CacheQuery): MaybePromise<CacheHit | CacheMiss>
  /**
   * Like `lookUp`, but changes neither the cache nor its statistics. Does not call custom embedders or verifiers,
   * because they may cost money, so with these only identical text is a hit.
   */
  peek(query: CacheQuery): MaybePromise<CacheHit | CacheMiss>
  /**
   * Raises the entry's threshold above the similarity of its hits since the last report, or removes the entry if all of
   * these had identical text. `id` is an entry id, or the id of one of the last 10,000 requests answered from the cache.
   */
  reportWrongHit(id: string): MaybePromise<void>
  clear(filter?: { readonly key?: string }): MaybePromise<void>
  stats(): CacheStatistics
  /** Resolves when all pending writes have settled. */
  flush(): Promise<void>
}

/** Cache statistics. GET /metrics/cache returns some of them. */
export interface CacheStatistics {
  /** `hits` divided by `totalRequests`, or 0 before the first lookup. */
  readonly hitRate: number
  /** Number of lookups, excluding requests that do not accept stored answers. */
  readonly totalRequests: number
  readonly hits: number
  readonly misses: number
  /** Number of hits on identical text. */
  readonly exactHits: number
  /** Number of candidates above the threshold that the guard or the verifier rejected, by reason. */
  readonly rejections: Readonly<Partial<Record<Difference | 'verifier', number>>>
  /** Number of lookups, writes, clears and reports in which a cache component failed or timed out. */
  readonly failures: number
  readonly entries: number
  readonly bytes: number
}

const DEFAULT_THRESHOLD = 0.95
const DEFAULT_MAX_ENTRIES = 1000
const DEFAULT_MAX_BYTES = 64 * 1024 * 1024
const DEFAULT_TIMEOUT_MS = 1000
/** Margin by which a raised threshold exceeds the similarity of the wrong hit. */
const THRESHOLD_STEP = 0.001
/** Number of requests whose hits can be reported by request id. */
const MAX_REPORTABLE_REQUESTS = 10_000

/** Creates the cache. Throws `invalid-request` with the name of the invalid option. */
export function createSemanticCache(options: SemanticCacheOptions): SemanticCache {
  checkCacheOptions(options)
  const context = createCacheContext(options)
  const entryIdByRequest = new LRUCache<string, string>({ max: MAX_REPORTABLE_REQUESTS })
  const remember = (result: CacheHit | CacheMiss, requestId: string | undefined): CacheHit | CacheMiss => {
    if (result.hit && requestId !== undefined) entryIdByRequest.set(requestId, result.id)
    return result
  }
  return {
    lookUp: (query) => whenReady(lookUp(context, query), (result) => remember(result, query.requestId)),
    peek: (query) => lookUp(toReadOnly(context), query),
    reportWrongHit: (id) =>
      attempt(context.tallies, () => raiseThreshold(context, entryIdByRequest.get(id) ?? id), undefined),
    clear: (filter = {}) => attempt(context.tallies, () => clear(context, filter.key), undefined),
    stats: () => statisticsOf(context.tallies, context.store.size()),
    flush: async () => void (await Promise.all(context.writes)),
  }
}

function createCacheContext(options: SemanticCacheOptions): CacheContext {
  const {
    runtime,
    maxEntries = DEFAULT_MAX_ENTRIES,
    maxBytes = DEFAULT_MAX_BYTES,
    timeoutMs = DEFAULT_TIMEOUT_MS,
  } = options
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
            // A vector without a stored entry is never a hit.
            if (isThenable(removed)) removed.catch(() => {})
          },
        })
      : guardAnswerStore(options.answers, { runtime, timeoutMs })
  return {
    options,
    threshold: options.similarityThreshold ?? DEFAULT_THRESHOLD,
    timeoutMs,
    store,
    search,
    tallies: createTallies(),
    writes: new Set(),
    lexicon: lazyLexicon(),
    pause,
  }
}

interface SearchDependencies extends Pick<CacheContext, 'pause' | 'timeoutMs'> {
  readonly hasComparable: AnswerStore['hasComparable']
}

/**
 * An in-memory cache with the offline embedder finds candidates by their words, without vectors. A local index needs no
 * limits, because the memory store removes the vector of each entry that it evicts.
 */
function createSearch(options: SemanticCacheOptions, dependencies: SearchDependencies): CandidateSearch {
  const {
    runtime,
    embedder = hashingEmbedder(),
    maxEntries = DEFAULT_MAX_ENTRIES,
    maxBytes = DEFAULT_MAX_BYTES,
  } = options
  const isLocal = options.index === undefined && options.answers === undefined
  if (isLocal && embedder === hashingEmbedder()) return createWordingSearch()
  const { timeoutMs, hasComparable, pause } = dependencies
  const bounds = isLocal ? { maxEntries: Infinity, maxBytes: Infinity } : { maxEntries, maxBytes }
  const { dimensions } = embedder
  const index =
    options.index === undefined
      ? createFlatIndex({ now: runtime.now, pause, dimensions, ...bounds })
      : guardVectorIndex(options.index, { runtime, timeoutMs })
  return createVectorSearch({ embedder, index, runtime, timeoutMs, isLocal, hasComparable })
}

function lookUp(context: CacheContext, query: CacheQuery): MaybePromise<CacheHit | CacheMiss> {
  const { options, tallies } = context
  const { keyId, modelName, cancellation, directives = NO_DIRECTIVES, smallModel = () => undefined } = query
  if (options.enabled === false || (!directives.allowsRead && !directives.allowsWrite)) return UNCACHEABLE
  const owner = options.scope === 'global' ? 'global' : `key ${keyId}`
  const key = cacheKeyOf(query.prompt, { owner, modelName, beta: query.beta })
  if (key === undefined) return UNCACHEABLE
  const lookup: Lookup = {
    key,
    keyId,
    modelName,
    // A caller can only raise the threshold.
    threshold: Math.max(context.threshold, Math.min(1, directives.threshold ?? 0)),
    cancellation,
    smallModel,
    spent: ZERO,
    form: undefined,
    vector: undefined,
  }
  if (!directives.allowsRead) return createMiss(context, lookup, directives)
  const result = attempt(tallies, () => findAnswer(context, lookup), undefined, cancellation)
  return whenReady(result, (hit) => {
    if (hit === undefined) {
      tallies.misses += 1
      return createMiss(context, lookup, directives)
    }
    tallies.hits += 1
    tallies.exactHits += hit.similarity === 1 && hit.id === key.id ? 1 : 0
    return lookup.spent === ZERO ? hit : { ...hit, spent: lookup.spent }
  })
}

function toReadOnly(context: CacheContext): CacheContext {
  const { store, options } = context
  const isFree = options.embedder === undefined && options.verifyHit === undefined
  const readOnlyStore: AnswerStore = {
    get: (id) => (store.peek === undefined ? store.get(id) : store.peek(id)),
    put: () => false,
    amend: () => {},
    remove: () => {},
    hasComparable: (scope) => store.hasComparable(scope),
    clear: () => {},
    size: () => store.size(),
  }
  return { ...context, threshold: isFree ? context.threshold : 1, tallies: createTallies(), store: readOnlyStore }
}

function raiseThreshold({ store: answers }: CacheContext, id: string): MaybePromise<void> {
  return whenReady(answers.get(id), (entry) => {
    if (entry === undefined) return undefined
    const { maxHitSimilarity = 0 } = entry
    return maxHitSimilarity === 0
      ? answers.remove(id)
      : answers.amend(id, { threshold: maxHitSimilarity + THRESHOLD_STEP, maxHitSimilarity: 0 })
  })
}

function clear({ store: answers, search }: CacheContext, keyId: string | undefined): MaybePromise<void> {
  return whenReady(answers.clear(keyId), () => (keyId === undefined ? search.clear() : undefined))
}

function createTallies(): CacheTallies {
  return { hits: 0, misses: 0, exactHits: 0, failures: 0, rejections: {} }
}

function statisticsOf(
  tallies: CacheTallies,
  size: { readonly entries: number; readonly bytes: number },
): CacheStatistics {
  const { hits, misses, rejections } = tallies
  const totalRequests = hits + misses
  const hitRate = totalRequests === 0 ? 0 : hits / totalRequests
  return { hitRate, totalRequests, ...tallies, rejections: { ...rejections }, ...size }
}
