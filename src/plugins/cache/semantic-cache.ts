import { LRUCache } from 'lru-cache'
import type { Completion } from '../../core/completion.ts'
import { type Cancellation, chain, isPromise, type MaybePromise } from '../../core/async.ts'
import type { ResponseStore, CachedResponse, StoreSize } from '../../core/cache.ts'
import { checkOptions, expects, optionsOf } from '../../core/check-options.ts'
import { ZERO, type NanoUsd } from '../../core/money.ts'
import type { Prompt } from '../../core/prompt.ts'
import { createMemoryResponseStore, guardResponseStore, guardVectorIndex } from './response-store.ts'
import { cacheKeyOf, isStorable, isTimeSensitive } from './cacheability.ts'
import { type SemanticCacheOptions, type VerifierModel } from './cache-options.ts'
import {
  attempt,
  createClaim,
  findResponse,
  type ResponseClaim,
  type CacheHit,
  type CacheContext,
  type CacheTallies,
} from './find-response.ts'
import { createFlatIndex } from './flat-index.ts'
import type { Difference } from './guard.ts'
import { hasTextTask, isStandAloneQuestion } from './stand-alone.ts'
import { createVectorSearch } from './vector-search.ts'
import { createWordingSearch, type CandidateSearch, type Lookup } from './wording-search.ts'
import { hashingEmbedder } from './hashing-embedder.ts'
import { NO_DIRECTIVES, type CacheDirectives } from '../../http/cache-directives.ts'

export interface CacheQuery {
  readonly prompt: Prompt
  readonly keyId: string
  /** True if the customer pays the vendor. Its responses are never shared. @default false */
  readonly hasOwnVendorKey?: boolean
  readonly modelName: string
  /** The client's headers that can change the response. @default none */
  readonly headers?: string
  readonly directives?: CacheDirectives
  readonly cancellation?: Cancellation
  readonly requestId?: string
  readonly smallModel?: () => VerifierModel | undefined
  /** The setting of the key or alias, which overrides that of the cache. */
  readonly similar?: boolean | undefined
}

export interface CacheMiss {
  readonly hit: false
  /** Cost of the verifier. */
  readonly spent: NanoUsd
  /** Absent if the request cannot share a response with identical requests. */
  readonly id?: string | undefined
  /** Returns false if the response is not stored. Never rejects. */
  store(completion: Completion, promptTokens: number): MaybePromise<boolean>
  countAsHit(): void
  readonly claim?: ResponseClaim | undefined
}

/** In a lookup, a failure of a cache component counts as a miss. */
export interface SemanticCache {
  lookUp(query: CacheQuery): MaybePromise<CacheHit | CacheMiss>
  /** Changes neither answers nor statistics. Calls no custom embedder or verifier, because they may cost money. */
  peek(query: CacheQuery): MaybePromise<CacheHit | CacheMiss>
  /** @param id An entry id, or the id of one of the last 10,000 requests to which `lookUp` returned a hit. */
  reportWrongHit(id: string): MaybePromise<void>
  clear(filter?: { readonly keyId?: string }): MaybePromise<void>
  /** Removes the responses that callers of a scope stored. Unlike `clear`, rejects if the store fails. */
  purge(scope: string): Promise<void>
  stats(): CacheStatistics
  flush(): Promise<void>
}

export interface CacheStatistics {
  readonly hitRate: number
  /** Number of lookups by cacheable requests that accept stored responses. */
  readonly totalRequests: number
  readonly hits: number
  readonly misses: number
  readonly exactHits: number
  /** Number of rejections by the guard and the verifier, by reason. */
  readonly rejections: Readonly<Partial<Record<Difference | 'verifier', number>>>
  readonly failures: number
  readonly entries: number
  readonly bytes: number
}

const DEFAULT_THRESHOLD = 0.95
const DEFAULT_MAX_ENTRIES = 1000
const DEFAULT_MAX_BYTES = 64 * 1024 * 1024
const DEFAULT_TIMEOUT_MS = 1000
const THRESHOLD_STEP = 0.001
const MAX_REPORTABLE_REQUESTS = 10_000

export function createSemanticCache(options: SemanticCacheOptions): SemanticCache {
  const context = createCacheContext(options)
  const { store, search, tallies } = context
  const entryIdByRequest = new LRUCache<string, string>({ max: MAX_REPORTABLE_REQUESTS })
  return {
    lookUp: (query) =>
      chain(lookUp(context, query), (result) => {
        if (result.hit && query.requestId !== undefined) entryIdByRequest.set(query.requestId, result.id)
        return result
      }),
    peek: (query) => lookUp(toReadOnly(context), query),
    reportWrongHit: (id) => attempt(tallies, () => removeOrRestrict(store, entryIdByRequest.get(id) ?? id), undefined),
    clear: (filter = {}) => {
      checkOptions('cache.clear', filter, checkFilter)
      const { keyId } = filter
      const clearIndex = (): MaybePromise<void> => (keyId === undefined ? search.clear() : undefined)
      return attempt(tallies, () => chain(store.clear(keyId), clearIndex), undefined)
    },
    purge: async (scope) => {
      // A running write would store its response afterwards.
      await Promise.all(context.writes)
      await store.clear(scope)
    },
    stats: () => statisticsOf(tallies, store.size()),
    flush: async () => void (await Promise.all(context.writes)),
  }
}

/** With an unknown name, such as `keyId`, the responses of all keys would be removed. */
const checkFilter = optionsOf(
  { keyId: expects('the id of a key as a string', (value) => typeof value === 'string') },
  [],
  'an object, such as { keyId: "<id>" }',
)

function createCacheContext(options: SemanticCacheOptions): CacheContext {
  const { runtime, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  const { maxEntries = DEFAULT_MAX_ENTRIES, maxBytes = DEFAULT_MAX_BYTES } = options
  const pause = options.pause ?? (() => new Promise<void>((resolve) => void runtime.after(0, resolve)))
  const hasComparable: ResponseStore['hasComparable'] = (scope) => store.hasComparable(scope)
  const search = createSearch(options, { pause, timeoutMs, maxEntries, maxBytes, hasComparable })
  const store: ResponseStore =
    options.responses === undefined
      ? createMemoryResponseStore({
          maxEntries,
          maxBytes,
          indexBytes: search.bytesOf,
          onRemove: ({ scope, id, comparable }) => {
            const removed = comparable ? search.remove(scope, id) : undefined
            // A vector without a stored entry is never a hit.
            if (isPromise(removed)) removed.catch(() => {})
          },
        })
      : guardResponseStore(options.responses, { runtime, timeoutMs })
  return {
    options,
    threshold: options.similarityThreshold ?? DEFAULT_THRESHOLD,
    timeoutMs,
    store,
    search,
    tallies: createTallies(),
    writes: new Set(),
    pause,
  }
}

type SearchSettings = Required<Pick<SemanticCacheOptions, 'pause' | 'timeoutMs' | 'maxEntries' | 'maxBytes'>> &
  Pick<ResponseStore, 'hasComparable'>

/** A local index needs no limits, because the memory store removes the vector of each entry that it evicts. */
function createSearch(options: SemanticCacheOptions, settings: SearchSettings): CandidateSearch {
  const { runtime, embedder = hashingEmbedder() } = options
  const { timeoutMs, hasComparable, pause, maxEntries, maxBytes } = settings
  if (isLocal(options) && embedder === hashingEmbedder()) return createWordingSearch()
  const limits = isLocal(options) ? { maxEntries: Infinity, maxBytes: Infinity } : { maxEntries, maxBytes }
  const index =
    options.index === undefined
      ? createFlatIndex({ now: runtime.now, pause, dimensions: embedder.dimensions, ...limits })
      : guardVectorIndex(options.index, { runtime, timeoutMs })
  return createVectorSearch({ embedder, index, runtime, timeoutMs, isLocal: isLocal(options), hasComparable })
}

function isLocal({ responses, index }: SemanticCacheOptions): boolean {
  return responses === undefined && index === undefined
}

function lookUp(context: CacheContext, query: CacheQuery): MaybePromise<CacheHit | CacheMiss> {
  const { options, tallies } = context
  const { keyId, hasOwnVendorKey = false, modelName, cancellation } = query
  const { directives = NO_DIRECTIVES, smallModel = () => undefined } = query
  if (!directives.allowsRead && !directives.allowsWrite) return UNCACHEABLE
  const own = hasOwnVendorKey ? `own key ${keyId}` : `key ${keyId}`
  const owner = options.scope === 'global' && !hasOwnVendorKey ? 'global' : own
  const exactKey = cacheKeyOf(query.prompt, { owner, modelName, headers: query.headers, isLocal: isLocal(options) })
  if (exactKey === undefined) return UNCACHEABLE
  const key = { ...exactKey, comparable: exactKey.comparable && mayBeSimilar(options, query, exactKey.text) }
  const lookup: Lookup = {
    key,
    keyId,
    modelName,
    // A caller can only raise the threshold.
    threshold: Math.max(context.threshold, Math.min(1, directives.threshold ?? 0)),
    cancellation,
    smallModel,
    hasTextTask: () => hasTextTask(query.prompt, key.text),
    spent: ZERO,
    form: undefined,
    vector: undefined,
  }
  if (!directives.allowsRead) return createMiss(context, lookup, directives)
  const result = attempt(tallies, () => findResponse(context, lookup), undefined, cancellation)
  return chain(result, (hit) => {
    if (hit === undefined) {
      tallies.misses += 1
      return createMiss(context, lookup, directives)
    }
    tallies.hits += 1
    tallies.exactHits += hit.similarity === 1 && hit.id === key.id ? 1 : 0
    return lookup.spent === ZERO ? hit : { ...hit, spent: lookup.spent }
  })
}

/** A threshold, an embedder or a verifier has an effect only on similar wordings, so setting one asks for them. */
function mayBeSimilar(options: SemanticCacheOptions, query: CacheQuery, text: string): boolean {
  const setting = query.similar ?? options.similar
  if (setting !== undefined) return setting
  const { similarityThreshold, embedder, verifyHit } = options
  const isRequested = [query.directives?.threshold, similarityThreshold, embedder, verifyHit].some(
    (value) => value !== undefined,
  )
  return isRequested || isStandAloneQuestion(query.prompt, text)
}

const UNCACHEABLE: CacheMiss = { hit: false, spent: ZERO, store: () => false, countAsHit: () => {} }

function createMiss(context: CacheContext, lookup: Lookup, directives: CacheDirectives): CacheMiss {
  const { tallies, writes } = context
  const isShareable = directives.allowsRead && directives.allowsWrite
  let isCounted = directives.allowsRead
  return {
    hit: false,
    spent: lookup.spent,
    id: isShareable ? lookup.key.id : undefined,
    claim: isShareable ? createClaim(context, lookup) : undefined,
    store: (completion, promptTokens) => {
      if (!directives.allowsWrite || !isStorable(completion)) return false
      const stored = attempt(tallies, () => storeResponse(context, lookup, { completion, promptTokens }), false)
      if (!isPromise(stored)) return stored
      writes.add(stored)
      return stored.finally(() => writes.delete(stored))
    },
    countAsHit: () => {
      if (!isCounted) return
      isCounted = false
      tallies.misses -= 1
      tallies.hits += 1
    },
  }
}

type NewResponse = Pick<CachedResponse, 'completion' | 'promptTokens'>

/** If the question cannot be indexed, only identical text finds the response. */
function storeResponse(context: CacheContext, lookup: Lookup, response: NewResponse): MaybePromise<boolean> {
  const { ttlSeconds = 3600, freshTtlSeconds = 60, runtime } = context.options
  const { id, scope, text } = lookup.key
  const needsFreshResponse = isTimeSensitive(text) || isTimeSensitive(lookup.key.previousText)
  const seconds = needsFreshResponse ? Math.min(freshTtlSeconds, ttlSeconds) : ttlSeconds
  const storedAt = runtime.now()
  const expiresAt = storedAt + 1000 * seconds
  const comparable = lookup.key.comparable && context.threshold < 1
  const entry: CachedResponse = { id, scope, text, keyId: lookup.keyId, ...response, storedAt, expiresAt, comparable }
  return chain(context.store.put(entry), (isStored) => {
    if (!isStored || !comparable) return isStored
    // Indexing continues after the caller disconnects, because the response is complete.
    const uncanceledLookup = { ...lookup, cancellation: undefined }
    const indexed = attempt(context.tallies, () => context.search.add(uncanceledLookup, expiresAt), undefined)
    return chain(indexed, () => true)
  })
}

function toReadOnly(context: CacheContext): CacheContext {
  const { store, options } = context
  const isFree = options.embedder === undefined && options.verifyHit === undefined
  const { hasComparable, size, peek = store.get } = store
  const ignoredWrites = { put: () => false, amend: () => {}, remove: () => {}, clear: () => {} }
  const readOnlyStore: ResponseStore = { ...ignoredWrites, get: peek, hasComparable, size }
  return { ...context, threshold: isFree ? context.threshold : 1, tallies: createTallies(), store: readOnlyStore }
}

function removeOrRestrict(store: ResponseStore, id: string): MaybePromise<void> {
  return chain(store.get(id), (entry) => {
    if (entry === undefined) return undefined
    const { maxHitSimilarity = 0 } = entry
    return maxHitSimilarity === 0
      ? store.remove(id)
      : store.amend(id, { threshold: maxHitSimilarity + THRESHOLD_STEP, maxHitSimilarity: 0 })
  })
}

function createTallies(): CacheTallies {
  return { hits: 0, misses: 0, exactHits: 0, failures: 0, rejections: {} }
}

function statisticsOf(tallies: CacheTallies, size: StoreSize): CacheStatistics {
  const { hits, misses, rejections } = tallies
  const totalRequests = hits + misses
  const hitRate = totalRequests === 0 ? 0 : hits / totalRequests
  return { hitRate, totalRequests, ...tallies, rejections: { ...rejections }, ...size }
}
