import { LRUCache } from 'lru-cache'
import type { AnswerStore } from '../core/cache-ports.ts'
import type { Cancellation } from '../core/async.ts'
import { ZERO } from '../core/money.ts'
import type { Prompt } from '../core/prompt.ts'
import { cacheKeyOf } from './cache-key.ts'
import { missOf, NOTHING_STORED, type CacheMiss } from './cache-miss.ts'
import {
  checkCacheOptions,
  NO_DIRECTIVES,
  type CacheDirectives,
  type SemanticCacheOptions,
  type VerifierModel,
} from './cache-options.ts'
import {
  attempt,
  createCacheParts,
  emptyTallies,
  statisticsOf,
  type CacheParts,
  type CacheStatistics,
} from './cache-parts.ts'
import { whenReady } from './deadlines.ts'
import { findAnswer, type CacheHit } from './find-answer.ts'
import type { Lookup } from './wording-search.ts'

export interface CacheQuestion {
  /** The prompt with the default settings of the model, which are part of the key. */
  readonly prompt: Prompt
  readonly keyId: string
  /** The requested model name as received. */
  readonly modelName: string
  /** @default read and write */
  readonly directives?: CacheDirectives
  readonly cancellation?: Cancellation
  /** Identifies the request in `reportWrongHit`. */
  readonly requestId?: string
  /** Returns the small model for a verifier. @default none */
  readonly smallModel?: () => VerifierModel | undefined
}

/** Tier 1. Methods return promises only if a part of the cache is asynchronous. A failed part causes a miss. */
export interface SemanticCache {
  lookUp(question: CacheQuestion): CacheHit | CacheMiss | Promise<CacheHit | CacheMiss>
  /**
   * Returns the result of `lookUp` without an effect on the cache or its statistics. Custom embedders and verifiers may
   * cost money and are not called. With them, only the same text is found.
   */
  peek(question: CacheQuestion): CacheHit | CacheMiss | Promise<CacheHit | CacheMiss>
  /**
   * Raises the threshold of an entry above the similarity of its hits. Removes an entry with hits on the same text
   * only. `id` is the id of the entry, or of one of the last 10,000 requests that the cache answered.
   */
  reportWrongHit(id: string): void | Promise<void>
  /** Removes all entries, or the entries stored by requests of one key. */
  clear(filter?: { readonly key?: string }): void | Promise<void>
  stats(): CacheStatistics
  /** Resolves when all pending writes of answers have succeeded or failed. */
  flush(): Promise<void>
}

/** Added to the similarity of a hit that was reported as wrong, for the new threshold. */
const STEP = 0.001
/** Number of answered requests whose entry can be reported by the id of the request. */
const MAX_SERVED = 10_000

/** Creates the cache. Throws `invalid-request` with the name of the invalid option. */
export function createSemanticCache(options: SemanticCacheOptions): SemanticCache {
  checkCacheOptions(options)
  const parts = createCacheParts(options)
  const served = new LRUCache<string, string>({ max: MAX_SERVED })
  const remember = (found: CacheHit | CacheMiss, requestId: string | undefined): CacheHit | CacheMiss => {
    if (found.hit && requestId !== undefined) served.set(requestId, found.id)
    return found
  }
  return {
    lookUp: (question) => whenReady(lookUp(parts, question), (found) => remember(found, question.requestId)),
    peek: (question) => lookUp(withoutTraces(parts), question),
    reportWrongHit: (id) => attempt(parts.tallies, () => raiseThreshold(parts, served.get(id) ?? id), undefined),
    clear: (filter = {}) => attempt(parts.tallies, () => clear(parts, filter.key), undefined),
    stats: () => statisticsOf(parts.tallies, parts.store.size()),
    flush: async () => void (await Promise.all(parts.writes)),
  }
}

function lookUp(parts: CacheParts, question: CacheQuestion): CacheHit | CacheMiss | Promise<CacheHit | CacheMiss> {
  const { options, tallies } = parts
  const { keyId, modelName, cancellation, directives = NO_DIRECTIVES, smallModel = () => undefined } = question
  if (options.enabled === false || (!directives.read && !directives.write)) return NOTHING_STORED
  const owner = options.scope === 'global' ? 'global' : `key ${keyId}`
  const key = cacheKeyOf(question.prompt, { owner, modelName })
  if (key === undefined) return NOTHING_STORED
  const lookup: Lookup = {
    key,
    keyId,
    modelName,
    // A caller can only raise the threshold.
    threshold: Math.max(parts.threshold, Math.min(1, directives.threshold ?? 0)),
    cancellation,
    smallModel,
    spent: ZERO,
    form: undefined,
    vector: undefined,
  }
  if (!directives.read) return missOf(parts, lookup, directives)
  const found = attempt(tallies, () => findAnswer(parts, lookup), undefined, cancellation)
  return whenReady(found, (hit) => {
    if (hit === undefined) {
      tallies.misses += 1
      return missOf(parts, lookup, directives)
    }
    tallies.hits += 1
    tallies.exactHits += hit.similarity === 1 && hit.id === key.id ? 1 : 0
    return lookup.spent === ZERO ? hit : { ...hit, spent: lookup.spent }
  })
}

function withoutTraces(parts: CacheParts): CacheParts {
  const { store, options } = parts
  const isFree = options.embedder === undefined && options.verifyHit === undefined
  const silent: AnswerStore = {
    get: (id) => (store.peek === undefined ? store.get(id) : store.peek(id)),
    put: () => false,
    amend: () => {},
    remove: () => {},
    hasComparable: (scope) => store.hasComparable(scope),
    clear: () => {},
    size: () => store.size(),
  }
  return { ...parts, threshold: isFree ? parts.threshold : 1, tallies: emptyTallies(), store: silent }
}

function raiseThreshold({ store: answers }: CacheParts, id: string): void | Promise<void> {
  return whenReady(answers.get(id), (entry) => {
    if (entry === undefined) return undefined
    const { servedAt = 0 } = entry
    return servedAt === 0 ? answers.remove(id) : answers.amend(id, { threshold: servedAt + STEP, servedAt: 0 })
  })
}

function clear({ store: answers, search }: CacheParts, keyId: string | undefined): void | Promise<void> {
  return whenReady(answers.clear(keyId), () => (keyId === undefined ? search.clear() : undefined))
}
