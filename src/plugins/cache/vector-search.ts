import { LRUCache } from 'lru-cache'
import { chain, isPromise, type MaybePromise } from '../../core/async.ts'
import type { Embedder, Neighbor, VectorIndex } from '../../core/cache.ts'
import type { Runtime } from '../../core/ports.ts'
import { FailurePause, runAbortable, runWithTimeout } from './response-store.ts'
import type { CandidateSearch, Lookup } from './wording-search.ts'
import { normOf } from './hashing-embedder.ts'

export interface VectorSearchOptions {
  readonly embedder: Embedder
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly timeoutMs: number
  readonly index: VectorIndex
  /** If false, each vector is added immediately, because other processes may search the index. */
  readonly isLocal: boolean
  readonly hasComparable: (scope: string) => MaybePromise<boolean>
}

const MAX_PENDING_PER_CALL = 32

interface PendingQuestion {
  readonly text: string
  readonly expiresAt: number
}

const OVERHEAD_BYTES = 528

export function bytesPerVector(dimensions: number): number {
  return dimensions * 4 + OVERHEAD_BYTES
}

/** Unit vectors. An element is undefined if the embedder returned an unusable vector. */
type Vectors = readonly (Float32Array | undefined)[]

export function createVectorSearch(options: VectorSearchOptions): CandidateSearch {
  const { embedder, index, isLocal, runtime, timeoutMs } = options
  const pending = new Map<string, Map<string, PendingQuestion>>()
  const embedTexts = createEmbedTexts(options)

  const forget = (scope: string, id: string): void => {
    const pendingQuestions = pending.get(scope)
    pendingQuestions?.delete(id)
    if (pendingQuestions?.size === 0) pending.delete(scope)
  }
  const vectorOf = (lookup: Lookup): MaybePromise<Float32Array> => {
    if (lookup.vector !== undefined) return lookup.vector
    const { scope, text } = lookup.key
    const pendingQuestions = Array.from(pending.get(scope) ?? []).slice(0, MAX_PENDING_PER_CALL)
    return chain(embedTexts([text, ...pendingQuestions.map(([, entry]) => entry.text)], lookup), (vectors) => {
      for (const [position, [id, { expiresAt }]] of pendingQuestions.entries()) {
        // Without a usable vector, the question is found only by identical text.
        const vector = vectors[position + 1]
        if (vector !== undefined && pending.get(scope)?.has(id)) void index.add({ id, scope, vector, expiresAt })
        forget(scope, id)
      }
      return (lookup.vector = vectors[0] ?? new Float32Array(embedder.dimensions))
    })
  }
  const nearest = (lookup: Lookup, limit: number): MaybePromise<readonly Neighbor[]> => {
    const { key, threshold: minSimilarity, cancellation } = lookup
    const timeout = { ms: timeoutMs, after: runtime.after, cancellation }
    const neighbors = chain(vectorOf(lookup), (vector) =>
      runWithTimeout(timeout, () => index.nearest(key.scope, vector, { minSimilarity, limit })),
    )
    return chain(neighbors, (all) => all.filter(({ similarity }) => similarity >= minSimilarity))
  }

  return {
    bytesOf: () => bytesPerVector(embedder.dimensions),
    find: (lookup, limit) =>
      chain(options.hasComparable(lookup.key.scope), (hasEntries) => (hasEntries ? nearest(lookup, limit) : [])),
    add: (lookup, expiresAt) => {
      const { scope, id, text } = lookup.key
      if (isLocal && lookup.vector === undefined) {
        const pendingQuestions = pending.get(scope) ?? new Map<string, PendingQuestion>()
        pending.set(scope, pendingQuestions.set(id, { text, expiresAt }))
        return undefined
      }
      return chain(vectorOf(lookup), (vector) => index.add({ id, scope, owner: lookup.keyId, vector, expiresAt }))
    },
    remove: (scope, id) => {
      forget(scope, id)
      return index.remove(id)
    },
    clear: () => {
      pending.clear()
      return index.clear()
    },
  }
}

/** The first text is the caller's. Only its vector must be usable. */
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
      if (vectors[0] === undefined) {
        throw new Error(
          `${embedder.name} returned an unusable vector. Expected ${embedder.dimensions} finite numbers, not all 0.`,
        )
      }
      health.recordSuccess(keyId)
      return vectors
    }
    const timeout = { ms: timeoutMs, after: runtime.after, cancellation }
    try {
      const vectors = chain(
        runAbortable(timeout, (signal) => embedder.embed(texts, signal)),
        accept,
      )
      return isPromise(vectors) ? vectors.catch(fail) : vectors
    } catch (error) {
      return fail(error)
    }
  }
}

function toUnitVector(vector: Float32Array | undefined, dimensions: number): Float32Array | undefined {
  if (vector === undefined || vector.length !== dimensions) return undefined
  const norm = normOf(vector)
  return Number.isFinite(norm) && norm > 0 ? vector.map((value) => value / norm) : undefined
}

const MAX_FAILING_KEYS = 1000

/** Counts failures per key, so that the texts of one key cannot pause the embedder for other keys. */
function createEmbedderHealth(now: () => number) {
  const pauseByKey = new LRUCache<string, FailurePause>({ max: MAX_FAILING_KEYS })
  const globalPause = new FailurePause(now)
  const failingKeys = new Set<string>()
  return {
    isPaused: (keyId: string): boolean => globalPause.isPaused || pauseByKey.peek(keyId)?.isPaused === true,
    recordSuccess: (keyId: string): void => {
      pauseByKey.delete(keyId)
      failingKeys.clear()
      globalPause.reset()
    },
    recordFailure: (keyId: string): void => {
      const keyPause = pauseByKey.get(keyId) ?? new FailurePause(now)
      pauseByKey.set(keyId, keyPause)
      keyPause.countFailure()
      if (failingKeys.size < 2) failingKeys.add(keyId)
      if (failingKeys.size > 1) globalPause.countFailure()
    },
  }
}
