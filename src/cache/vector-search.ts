import { isThenable, type MaybePromise } from '../core/async.ts'
import { LRUCache } from 'lru-cache'
import type { Embedder, VectorIndex } from '../core/cache-ports.ts'
import type { Runtime } from '../core/ports.ts'
import { type Canonical, canonicalize } from './canonical.ts'
import { createFailurePause, type FailurePause, whenReady, runWithTimeout, runAbortable } from './deadlines.ts'
import type { CacheCandidate, CandidateSearch, Lookup } from './wording-search.ts'
import { GatewayError } from '../core/errors.ts'
import { createSigner, SIGNATURE_WORDS } from './hashing.ts'
import { createPartition, type Partition, type StoredVector, tailNormOf } from './partition.ts'

export interface VectorSearchOptions {
  readonly embedder: Embedder
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly timeoutMs: number
  readonly index: VectorIndex
  /**
   * True if only this process writes to the index. The first question of a scope is then embedded together with the
   * second one. In a shared index, each vector is added immediately.
   */
  readonly isLocal: boolean
  readonly hasComparable: (scope: string) => MaybePromise<boolean>
}

const MAX_FORMS = 256
/** Maximum number of pending questions embedded together with a new one. */
const MAX_EMBEDDED_TOGETHER = 32

interface PendingQuestion {
  readonly text: string
  readonly expiresAt: number
}

/** Unit vectors. An element is undefined if the embedder returned an unusable vector. */
type Vectors = readonly (Float32Array | undefined)[]

export function createVectorSearch(options: VectorSearchOptions): CandidateSearch {
  const { embedder, index, isLocal, runtime, timeoutMs } = options
  const forms = new LRUCache<string, Canonical>({ max: MAX_FORMS })
  const pending = new Map<string, Map<string, PendingQuestion>>()
  const embedTexts = createEmbedTexts(options)

  const forget = (scope: string, id: string): void => {
    const pendingQuestions = pending.get(scope)
    pendingQuestions?.delete(id)
    if (pendingQuestions?.size === 0) pending.delete(scope)
  }
  /**
   * Adds the pending questions that are still stored. Without a usable vector, a question is found only by identical
   * text.
   */
  const addPending = (
    scope: string,
    pendingQuestions: readonly (readonly [string, PendingQuestion])[],
    vectors: Vectors,
  ): void => {
    for (const [position, [id, { expiresAt }]] of pendingQuestions.entries()) {
      const vector = vectors[position + 1]
      if (vector !== undefined && pending.get(scope)?.has(id)) void index.add({ id, scope, vector, expiresAt })
      forget(scope, id)
    }
  }
  const vectorOf = (lookup: Lookup): MaybePromise<Float32Array> => {
    if (lookup.vector !== undefined) return lookup.vector
    const { scope, text } = lookup.key
    const pendingQuestions = Array.from(pending.get(scope) ?? []).slice(0, MAX_EMBEDDED_TOGETHER)
    return whenReady(embedTexts([text, ...pendingQuestions.map(([, entry]) => entry.text)], lookup), (vectors) => {
      addPending(scope, pendingQuestions, vectors)
      return (lookup.vector = vectors[0] ?? new Float32Array(embedder.dimensions))
    })
  }
  const formOf = (id: string, text: string): Canonical => {
    const cached = forms.get(id)
    if (cached !== undefined) return cached
    const form = canonicalize(text)
    forms.set(id, form)
    return form
  }
  const nearest = (lookup: Lookup, limit: number): MaybePromise<readonly CacheCandidate[]> => {
    const { threshold, cancellation } = lookup
    const timeout = { ms: timeoutMs, after: runtime.after, cancellation }
    const search = (vector: Float32Array): ReturnType<VectorIndex['nearest']> =>
      runWithTimeout(timeout, () => index.nearest(lookup.key.scope, vector, { minSimilarity: threshold, limit }))
    return whenReady(whenReady(vectorOf(lookup), search), (neighbors) =>
      neighbors
        .filter(({ similarity }) => similarity >= threshold)
        .map(({ id, similarity }) => ({ id, form: (text) => formOf(id, text), similarity: () => similarity })),
    )
  }

  return {
    bytesOf: () => bytesPerVector(embedder.dimensions),
    find: (lookup, limit) =>
      whenReady(options.hasComparable(lookup.key.scope), (has) => (has ? nearest(lookup, limit) : [])),
    add: (lookup, expiresAt) => {
      const { scope, id, text } = lookup.key
      if (isLocal && lookup.vector === undefined) {
        const pendingQuestions = pending.get(scope) ?? new Map<string, PendingQuestion>()
        pending.set(scope, pendingQuestions.set(id, { text, expiresAt }))
        return undefined
      }
      return whenReady(vectorOf(lookup), (vector) => index.add({ id, scope, owner: lookup.keyId, vector, expiresAt }))
    },
    remove: (scope, id) => {
      forget(scope, id)
      forms.delete(id)
      return index.remove(id)
    },
    clear: () => {
      pending.clear()
      forms.clear()
      return index.clear()
    },
  }
}

/**
 * Embeds the caller's text, followed by pending questions of the scope. Throws or rejects if the embedder fails, times
 * out or is paused after failures, and if the vector of the first text is unusable: wrong dimensions, NaN, or only zeros.
 */
type EmbedTexts = (texts: readonly string[], caller: Pick<Lookup, 'keyId' | 'cancellation'>) => MaybePromise<Vectors>

function createEmbedTexts({ embedder, runtime, timeoutMs }: VectorSearchOptions): EmbedTexts {
  const health = createEmbedderHealth(runtime.now)
  return (texts, { keyId, cancellation }) => {
    if (health.isPaused(keyId)) throw new Error('The embedder is paused after repeated failures.')
    const fail = (error: unknown): never => {
      if (cancellation?.isCanceled !== true) health.recordFailure(keyId)
      throw error
    }
    const accept = (results: readonly Float32Array[]): Vectors => {
      const vectors = texts.map((_, textIndex) => toUnitVector(results[textIndex], embedder.dimensions))
      if (vectors[0] === undefined)
        return fail(
          new Error(
            `${embedder.name} returned an unusable vector. Expected ${embedder.dimensions} finite numbers, not all 0.`,
          ),
        )
      health.recordSuccess(keyId)
      return vectors
    }
    const timeout = { ms: timeoutMs, after: runtime.after, cancellation }
    try {
      const results = runAbortable(timeout, (signal) => embedder.embed(texts, signal))
      return isThenable(results) ? results.then(accept, fail) : accept(results)
    } catch (error) {
      return fail(error)
    }
  }
}

function toUnitVector(vector: Float32Array | undefined, dimensions: number): Float32Array | undefined {
  if (vector === undefined || vector.length !== dimensions) return undefined
  let squares = 0
  for (const value of vector) squares += value * value
  const norm = Math.sqrt(squares)
  return Number.isFinite(norm) && norm > 0 ? vector.map((value) => value / norm) : undefined
}

const MAX_FAILING_KEYS = 1000

interface EmbedderHealth {
  isPaused(keyId: string): boolean
  recordSuccess(keyId: string): void
  recordFailure(keyId: string): void
}

/**
 * Counts failures per key, so that the texts of one key cannot pause the embedder for other keys. Failures of several
 * keys pause it for all keys.
 */
function createEmbedderHealth(now: () => number): EmbedderHealth {
  const pauseByKey = new LRUCache<string, FailurePause>({ max: MAX_FAILING_KEYS })
  const globalPause = createFailurePause(now)
  const failingKeys = new Set<string>()
  return {
    isPaused: (keyId) => globalPause.isPaused || pauseByKey.peek(keyId)?.isPaused === true,
    recordSuccess: (keyId) => {
      pauseByKey.delete(keyId)
      failingKeys.clear()
      globalPause.reset()
    },
    recordFailure: (keyId) => {
      const keyPause = pauseByKey.get(keyId) ?? createFailurePause(now)
      pauseByKey.set(keyId, keyPause)
      keyPause.countFailure()
      if (failingKeys.size < 2) failingKeys.add(keyId)
      if (failingKeys.size > 1) globalPause.countFailure()
    },
  }
}

export interface FlatIndexOptions {
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Yields to the event loop. Called every few milliseconds during a search. @default resolves immediately */
  readonly pause?: () => Promise<void>
  /** Number of dimensions of the vectors. @default 1024 */
  readonly dimensions?: number
  /** Maximum number of entries. @default 100,000 */
  readonly maxEntries?: number
  /** Maximum size of vectors and signatures, in bytes. @default 512 MiB */
  readonly maxBytes?: number
}

const OVERHEAD_BYTES = 400
/** Maximum number of entries that one `add` checks for expiry. */
const MAX_EXPIRY_CHECKS = 4

function bytesPerVector(dimensions: number): number {
  return dimensions * 4 + SIGNATURE_WORDS * 4 + OVERHEAD_BYTES
}

/**
 * Creates an in-memory index, partitioned by scope, that ranks neighbors by exact cosine. A full index evicts the least
 * recently found or added entry. The probability of missing a neighbor is about 10^-10.
 */
export function createFlatIndex(options: FlatIndexOptions): VectorIndex {
  const { now, dimensions = 1024, maxEntries = 100_000, maxBytes = 512 * 1024 * 1024 } = options
  const pause = options.pause ?? (() => Promise.resolve())
  const capacity = Math.min(maxEntries, Math.floor(maxBytes / bytesPerVector(dimensions)))
  const sign = createSigner(dimensions)
  const entries = new Map<string, StoredVector>()
  const partitions = new Map<string, Partition>()

  const checkDimensions = (vector: Float32Array): void => {
    if (vector.length === dimensions) return
    throw new GatewayError(
      'internal',
      `A vector has ${vector.length} dimensions; the index expects ${dimensions}. Set the dimensions of the index to those of the embedder.`,
    )
  }
  const remove = (entry: StoredVector): void => {
    entries.delete(entry.id)
    const partition = partitions.get(entry.scope)
    partition?.remove(entry)
    if (partition?.size() === 0) partitions.delete(entry.scope)
  }
  const evict = (): void => {
    let checkedCount = 0
    for (const entry of entries.values()) {
      const isFull = entries.size >= capacity
      if (!isFull && checkedCount >= MAX_EXPIRY_CHECKS) return
      checkedCount += 1
      if (isFull || entry.expiresAt <= now()) remove(entry)
    }
  }

  return {
    add: ({ id, scope, vector, expiresAt }) => {
      checkDimensions(vector)
      const old = entries.get(id)
      if (old !== undefined) remove(old)
      evict()
      if (capacity < 1) return
      const entry = { id, scope, vector: vector.slice(), tailNorm: tailNormOf(vector), expiresAt, row: 0 }
      const partition = partitions.get(scope) ?? createPartition(sign)
      partitions.set(scope, partition)
      partition.add(entry)
      entries.set(id, entry)
    },
    nearest: (scope, vector, { minSimilarity, limit }) => {
      checkDimensions(vector)
      const partition = partitions.get(scope)
      if (partition === undefined || limit < 1) return []
      const result = partition.search({ vector, minSimilarity, limit, now: now() }, pause)
      const keepStored = (neighbors: Awaited<typeof result>): Awaited<typeof result> => {
        const present = neighbors.filter(({ id }) => entries.get(id)?.scope === scope)
        for (const { id } of present.toReversed()) touch(entries, id)
        return present
      }
      return result instanceof Promise ? result.then(keepStored) : keepStored(result)
    },
    remove: (id) => {
      const entry = entries.get(id)
      if (entry !== undefined) remove(entry)
    },
    clear: () => {
      entries.clear()
      partitions.clear()
    },
  }
}

function touch(entries: Map<string, StoredVector>, id: string): void {
  const entry = entries.get(id)
  if (entry === undefined) return
  entries.delete(id)
  entries.set(id, entry)
}
