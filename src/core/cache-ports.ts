import type { Store } from './store.ts'
import type { Completion } from './answer.ts'

/** A stored answer and the request that it answers. */
export interface CachedAnswer {
  readonly id: string
  readonly scope: string
  /** The normalized question. */
  readonly text: string
  /** The key whose request stored the answer. Requests of other keys in the scope also find it. */
  readonly keyId: string
  readonly completion: Completion
  /** Prompt tokens before any tier shortened the prompt. A hit saves this number of tokens. */
  readonly promptTokens: number
  /** Milliseconds since 1970. */
  readonly storedAt: number
  readonly expiresAt: number
  /** True if a similar text can hit, false if only an identical text can hit. */
  readonly comparable: boolean
  /** Minimum similarity for a hit by another text. Reports of wrong hits raise it. @default 0 */
  readonly threshold?: number
  /** Highest similarity at which another text has hit since the last report. @default 0 */
  readonly maxHitSimilarity?: number
}

export interface StoreSize {
  readonly entries: number
  readonly bytes: number
}

/** Stores answers. A rejected call counts as a miss. Methods return a promise only if they must wait. */
export interface AnswerStore {
  get(id: string): CachedAnswer | undefined | Promise<CachedAnswer | undefined>
  /** Like `get`, but does not mark the entry as used. @default get */
  peek?(id: string): CachedAnswer | undefined | Promise<CachedAnswer | undefined>
  /** Returns false if the answer exceeds the capacity of the store. */
  put(answer: CachedAnswer): boolean | Promise<boolean>
  /** Has no effect if the entry no longer exists. */
  amend(id: string, changes: Pick<CachedAnswer, 'threshold' | 'maxHitSimilarity'>): void | Promise<void>
  remove(id: string): void | Promise<void>
  /** Returns true if the scope has a comparable entry. */
  hasComparable(scope: string): boolean | Promise<boolean>
  /** Removes all entries, or those stored by requests of one key. */
  clear(keyId?: string): void | Promise<void>
  /** A store that several processes share may count only the entries of this process. */
  size(): StoreSize
  /** Claims that let one process compute an answer for all processes. @default each process computes it */
  readonly claims?: AnswerClaims
}

/** Claims on answers that are not stored yet. Claims expire, because a process may end before it releases its claim. */
export interface AnswerClaims {
  /** Returns true for the process that must compute the answer. */
  acquire(id: string, ttlMs: number): Promise<boolean>
  isHeld(id: string): Promise<boolean>
  /** Ends a claim of this process. */
  release(id: string): Promise<void>
  /**
   * Shared values through which the process with the claim publishes its stream. If absent, other processes wait for
   * the complete answer.
   */
  readonly values?: StreamValues
}

export type StreamValues = Pick<Store, 'get' | 'set' | 'swap'>

/** Converts texts to vectors of `dimensions` numbers. `embed` returns a promise only if it must wait. */
export interface Embedder {
  readonly name: string
  readonly dimensions: number
  /** US dollars per million tokens, for the actual cost of requests with `savings.embedder`. @default 0 */
  readonly price?: number
  embed(texts: readonly string[], signal?: AbortSignal): readonly Float32Array[] | Promise<readonly Float32Array[]>
}

/** A stored vector that is similar to the query. */
export interface Neighbor {
  readonly id: string
  /** Cosine similarity, from -1 to 1. */
  readonly similarity: number
}

/** Finds the nearest vectors within a scope. Vectors have a norm of 1. */
export interface VectorIndex {
  add(entry: {
    readonly id: string
    readonly scope: string
    /** The key whose request stored the entry. An index may limit the number of entries per owner. */
    readonly owner?: string
    readonly vector: Float32Array
    readonly expiresAt: number
  }): void | Promise<void>
  /** Returns at most `limit` vectors with a similarity of at least `minSimilarity`, nearest first. */
  nearest(
    scope: string,
    vector: Float32Array,
    options: { readonly minSimilarity: number; readonly limit: number },
  ): readonly Neighbor[] | Promise<readonly Neighbor[]>
  remove(id: string): void | Promise<void>
  clear(): void | Promise<void>
  /** Returns one sentence for each guarantee that the storage does not provide as configured. */
  warnings?(): Promise<readonly string[]>
}
