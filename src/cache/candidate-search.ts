import type { Cancellation } from '../core/cancellation.ts'
import type { CacheKey } from './cache-key.ts'
import type { Canonical } from './canonical.ts'
import type { VerifierModel } from './verifier.ts'
import type { NanoUsd } from '../core/money.ts'

/** A question on its way through the cache. The form and the vector are computed when they are first needed. */
export interface Lookup {
  readonly key: CacheKey
  readonly keyId: string
  /** The requested model as the caller wrote it. */
  readonly modelName: string
  readonly threshold: number
  readonly cancellation: Cancellation | undefined
  readonly smallModel: () => VerifierModel | undefined
  /** Cost of the verifier. */
  spent: NanoUsd
  form: Canonical | undefined
  vector: Float32Array | undefined
}

/** A stored question that may ask the same. */
export interface CacheCandidate {
  readonly id: string
  /** Returns the canonical form of its text. */
  readonly form: (text: string) => Canonical
  /** Returns its similarity. */
  readonly similarity: () => number
}

/** Finds stored questions to compare with, within one scope. */
export interface CandidateSearch {
  /** Bytes that a question takes in the index. */
  bytesOf(text: string): number
  /** Returns the best candidates, at most `limit`. Rejects when a part fails or is late. */
  find(lookup: Lookup, limit: number): readonly CacheCandidate[] | Promise<readonly CacheCandidate[]>
  /** Makes a stored question findable. */
  add(lookup: Lookup, expiresAt: number): void | Promise<void>
  remove(scope: string, id: string): void | Promise<void>
  clear(): void | Promise<void>
}
