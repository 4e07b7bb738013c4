import { LRUCache } from 'lru-cache'
import type { VectorIndex } from '../core/cache-ports.ts'
import type { CacheCandidate, CandidateSearch, Lookup } from './candidate-search.ts'
import { canonicalize, type Canonical } from './canonical.ts'
import { createEmbedTexts, type EmbedTextsOptions, type Vectors } from './embed-texts.ts'
import { indexBytesOf } from './flat-index.ts'
import { whenReady, withDeadline } from './timeout.ts'

export interface VectorSearchOptions extends EmbedTextsOptions {
  readonly index: VectorIndex
  /**
   * True where this process alone fills the index: a question is then embedded when a second one arrives in its scope,
   * in the same call. A shared index gets each vector at once.
   */
  readonly deferred: boolean
  /** Returns true when a scope has questions to compare with. */
  readonly hasComparable: (scope: string) => boolean | Promise<boolean>
}

/** Number of canonical forms of stored questions that are kept, because they are compared again and again. */
const MAX_FORMS = 256
/** Maximum number of waiting questions that are embedded together with a new one. */
const MAX_EMBEDDED_TOGETHER = 32

interface Pending {
  readonly text: string
  readonly expiresAt: number
}

/** Finds candidates by the cosine of their embeddings. */
export function createVectorSearch(options: VectorSearchOptions): CandidateSearch {
  const { embedder, index, deferred, runtime, timeoutMs } = options
  const forms = new LRUCache<string, Canonical>({ max: MAX_FORMS })
  const pending = new Map<string, Map<string, Pending>>()
  const embedTexts = createEmbedTexts(options)

  const forget = (scope: string, id: string): void => {
    const waiting = pending.get(scope)
    waiting?.delete(id)
    if (waiting?.size === 0) pending.delete(scope)
  }
  /** Adds the waiting questions that are still stored. One whose vector is not usable is found by its text alone. */
  const addWaiting = (scope: string, waiting: readonly (readonly [string, Pending])[], vectors: Vectors): void => {
    for (const [at, [id, { expiresAt }]] of waiting.entries()) {
      const vector = vectors[at + 1]
      if (vector !== undefined && pending.get(scope)?.has(id)) void index.add({ id, scope, vector, expiresAt })
      forget(scope, id)
    }
  }
  const vectorOf = (lookup: Lookup): Float32Array | Promise<Float32Array> => {
    if (lookup.vector !== undefined) return lookup.vector
    const { scope, text } = lookup.key
    const waiting = Array.from(pending.get(scope) ?? []).slice(0, MAX_EMBEDDED_TOGETHER)
    return whenReady(embedTexts([text, ...waiting.map(([, entry]) => entry.text)], lookup), (vectors) => {
      addWaiting(scope, waiting, vectors)
      return (lookup.vector = vectors[0] ?? new Float32Array(embedder.dimensions))
    })
  }
  const formOf = (id: string, text: string): Canonical => {
    const known = forms.get(id)
    if (known !== undefined) return known
    const form = canonicalize(text)
    forms.set(id, form)
    return form
  }
  const nearest = (lookup: Lookup, limit: number): readonly CacheCandidate[] | Promise<readonly CacheCandidate[]> => {
    const { threshold, cancellation } = lookup
    const timeout = { ms: timeoutMs, after: runtime.after, cancellation }
    const search = (vector: Float32Array): ReturnType<VectorIndex['nearest']> =>
      withDeadline(timeout, () => index.nearest(lookup.key.scope, vector, { least: threshold, limit }))
    return whenReady(whenReady(vectorOf(lookup), search), (found) =>
      found
        .filter(({ similarity }) => similarity >= threshold)
        .map(({ id, similarity }) => ({ id, form: (text) => formOf(id, text), similarity: () => similarity })),
    )
  }

  return {
    bytesOf: () => indexBytesOf(embedder.dimensions),
    find: (lookup, limit) =>
      whenReady(options.hasComparable(lookup.key.scope), (has) => (has ? nearest(lookup, limit) : [])),
    add: (lookup, expiresAt) => {
      const { scope, id, text } = lookup.key
      if (deferred && lookup.vector === undefined) {
        const waiting = pending.get(scope) ?? new Map<string, Pending>()
        pending.set(scope, waiting.set(id, { text, expiresAt }))
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
