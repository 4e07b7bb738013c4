import type { Cancellation } from '../core/cancellation.ts'
import { LRUCache } from 'lru-cache'
import type { Completion } from '../core/answer.ts'
import { ZERO, type NanoUsd } from '../core/money.ts'
import type { Prompt } from '../core/prompt.ts'
import type { AnswerStore, CachedAnswer } from '../core/cache-ports.ts'
import { NO_DIRECTIVES, type CacheDirectives } from './cache-directives.ts'
import { cacheKeyOf, type CacheKey } from './cache-key.ts'
import { createAnswerClaim, type AnswerClaim } from './claimed-answer.ts'
import { checkCacheOptions, type SemanticCacheOptions } from './cache-options.ts'
import { createCacheParts, type CacheParts } from './cache-parts.ts'
import type { Lookup } from './candidate-search.ts'
import { findAnswer, findSame, type CacheHit } from './find-answer.ts'
import { emptyTallies, statisticsOf, type CacheStatistics, type Tallies } from './statistics.ts'
import { isStorable } from './storable.ts'
import { isTimeSensitive } from './time-sensitivity.ts'
import { isPending, whenReady } from './timeout.ts'
import type { VerifierModel } from './verifier.ts'

export interface CacheQuestion {
  /** With the default settings of the model applied: they count as parameters. */
  readonly prompt: Prompt
  readonly keyId: string
  /** The requested model as the caller wrote it. */
  readonly modelName: string
  /** @default read and write */
  readonly directives?: CacheDirectives
  readonly cancellation?: Cancellation
  /** Names the request in `reportWrongHit`. */
  readonly requestId?: string
  /** Returns the small model for a verifier. @default none */
  readonly smallModel?: () => VerifierModel | undefined
}

export interface CacheMiss {
  readonly hit: false
  /** What a verifier cost; it counts in the actual cost of the request. */
  readonly spent: NanoUsd
  /** Equal for identical requests, so that one of them may answer all; absent where nothing is stored. */
  readonly id?: string | undefined
  /** Stores a complete answer of status 200; returns whether it did. Never rejects. */
  store(completion: Completion, promptTokens: number): boolean | Promise<boolean>
  /** Counts the request as a hit: the answer of an identical request was shared with it. */
  becameHit(): void
  /** Lets one of several processes answer identical requests. Absent where the store of answers cannot. */
  readonly claim?: AnswerClaim<CacheHit> | undefined
}

/** Tier 1. Methods return promises only where a part of the cache must wait. A part that fails causes a miss. */
export interface SemanticCache {
  lookUp(question: CacheQuestion): CacheHit | CacheMiss | Promise<CacheHit | CacheMiss>
  /**
   * Returns what `lookUp` would return, without a trace in the cache or its statistics. A custom embedder or verifier
   * is not called, because that may cost money: then only the same text is found.
   */
  peek(question: CacheQuestion): CacheHit | CacheMiss | Promise<CacheHit | CacheMiss>
  /**
   * Raises the threshold of an entry above the similarity of its hits so far; removes one that served its own text only.
   * `id` is the id of the entry, or of one of the last 10,000 requests that were answered from the cache.
   */
  reportWrongHit(id: string): void | Promise<void>
  /** Removes all entries, or those that requests of one key stored. */
  clear(which?: { readonly key?: string }): void | Promise<void>
  stats(): CacheStatistics
  /** Resolves when the answers that are being stored are stored, or were given up. */
  flush(): Promise<void>
}

/** Added to the similarity of hits that were reported as wrong. */
const STEP = 0.001
/** Number of answered requests whose entry is known by the id of the request. */
const MAX_SERVED = 10_000

/** Throws `invalid-request` with the name of the wrong option. */
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
    clear: (which = {}) => attempt(parts.tallies, () => clear(parts, which.key), undefined),
    stats: () => statisticsOf(parts.tallies, parts.store.size()),
    flush: async () => void (await Promise.all(parts.writes)),
  }
}

function lookUp(parts: CacheParts, question: CacheQuestion): CacheHit | CacheMiss | Promise<CacheHit | CacheMiss> {
  const { options, tallies } = parts
  const { keyId, modelName, cancellation, directives = NO_DIRECTIVES } = question
  if (options.enabled === false || (!directives.read && !directives.write)) return NOTHING_STORED
  const owner = options.scope === 'global' ? 'global' : `key ${keyId}`
  const key = cacheKeyOf(question.prompt, { owner, modelName })
  if (key === undefined) return NOTHING_STORED
  // A caller may only be stricter than the operator.
  const threshold = Math.max(parts.threshold, Math.min(1, directives.threshold ?? 0))
  const { smallModel = () => undefined } = question
  const spent = ZERO
  const lookup: Lookup = {
    key,
    keyId,
    modelName,
    threshold,
    cancellation,
    smallModel,
    spent,
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

const NOTHING_STORED: CacheMiss = { hit: false, spent: ZERO, store: () => false, becameHit: () => {} }

/** Returns the result of `work`, or `otherwise` when it fails. A caller that disconnects is not a failure. */
function attempt<T>(
  tallies: Tallies,
  work: () => T | Promise<T>,
  otherwise: T,
  cancellation?: Cancellation,
): T | Promise<T> {
  const failed = (): T => {
    tallies.failures += cancellation?.isCancelled === true ? 0 : 1
    return otherwise
  }
  try {
    const result = work()
    return isPending(result) ? result.then(undefined, failed) : result
  } catch {
    return failed()
  }
}

function missOf(parts: CacheParts, lookup: Lookup, directives: CacheDirectives): CacheMiss {
  const { tallies } = parts
  const isShared = directives.read && directives.write
  let isCounted = directives.read
  return {
    hit: false,
    spent: lookup.spent,
    id: isShared ? lookup.key.id : undefined,
    claim: isShared ? claimOf(parts, lookup) : undefined,
    store: (completion, promptTokens) => {
      if (!directives.write || !isStorable(completion)) return false
      return track(
        parts.writes,
        attempt(tallies, () => store(parts, lookup, { completion, promptTokens }), false),
      )
    },
    becameHit: () => {
      if (!isCounted) return
      isCounted = false
      tallies.misses -= 1
      tallies.hits += 1
    },
  }
}

/** Remembers a write while it runs; it never rejects. */
function track(writes: Set<Promise<unknown>>, stored: boolean | Promise<boolean>): boolean | Promise<boolean> {
  if (!isPending(stored)) return stored
  writes.add(stored)
  return stored.finally(() => writes.delete(stored))
}

function claimOf(parts: CacheParts, lookup: Lookup): CacheMiss['claim'] {
  const { claims } = parts.store
  if (claims === undefined) return undefined
  const { runtime } = parts.options
  const { key, cancellation } = lookup
  const read = async (): Promise<CacheHit | undefined> =>
    attempt(parts.tallies, () => findSame(parts, lookup), undefined, cancellation)
  return createAnswerClaim({ claims, id: key.id, runtime, cancellation, read })
}

type Answered = Pick<CachedAnswer, 'completion' | 'promptTokens'>

/** A question that cannot be indexed is still found by the same text. */
function store(parts: CacheParts, lookup: Lookup, { completion, promptTokens }: Answered): boolean | Promise<boolean> {
  const { key, keyId } = lookup
  const { id, scope, text } = key
  const storedAt = parts.options.runtime.now()
  const expiresAt = storedAt + lifetimeOf(parts, key)
  const comparable = key.comparable && parts.threshold < 1
  const entry: CachedAnswer = {
    id,
    scope,
    text,
    keyId,
    completion,
    promptTokens,
    storedAt,
    expiresAt,
    comparable,
  }
  return whenReady(parts.store.put(entry), (isStored) => {
    if (!isStored || !comparable) return isStored
    // A complete answer is stored although its caller may have disconnected.
    const indexed = attempt(
      parts.tallies,
      () => parts.search.add({ ...lookup, cancellation: undefined }, expiresAt),
      undefined,
    )
    return whenReady(indexed, () => true)
  })
}

function lifetimeOf({ options }: CacheParts, { text }: CacheKey): number {
  const { ttlSeconds = 3600, freshTtlSeconds = 60 } = options
  return 1000 * (isTimeSensitive(text) ? Math.min(freshTtlSeconds, ttlSeconds) : ttlSeconds)
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
