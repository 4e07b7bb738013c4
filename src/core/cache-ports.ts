import type { Store } from './store.ts'
import type { Completion } from './answer.ts'

/** A stored answer. */
export interface CachedAnswer {
  readonly id: string
  readonly scope: string
  /** The question, normalized. */
  readonly text: string
  /** The key whose request stored the answer. The scope determines which requests find it. */
  readonly keyId: string
  readonly completion: Completion
  /** Tokens of the prompt as received, before any tier shortened it: the number that a hit saves. */
  readonly promptTokens: number
  /** Milliseconds since 1970. */
  readonly storedAt: number
  readonly expiresAt: number
  /** False if only the same text may hit. */
  readonly comparable: boolean
  /** Minimum similarity at which this entry answers another text. Reports of wrong hits raise it. @default 0 */
  readonly threshold?: number
  /** Maximum similarity at which it answered another text since the last report. @default 0 */
  readonly servedAt?: number
}

export interface StoreSize {
  readonly entries: number
  readonly bytes: number
}

/**
 * Stores answers. The memory store belongs to one process; a store in a shared database can replace it. A rejected call
 * is a miss. Methods that do not wait return values, not promises.
 */
export interface AnswerStore {
  get(id: string): CachedAnswer | undefined | Promise<CachedAnswer | undefined>
  /** Like `get`, but does not count as use of the entry. @default get */
  peek?(id: string): CachedAnswer | undefined | Promise<CachedAnswer | undefined>
  /** Returns false when the answer does not fit. */
  put(answer: CachedAnswer): boolean | Promise<boolean>
  /** Changes thresholds of an entry, if it still exists. */
  amend(id: string, changes: Pick<CachedAnswer, 'threshold' | 'servedAt'>): void | Promise<void>
  remove(id: string): void | Promise<void>
  /** Returns true when the scope has an entry whose text may be compared with another. */
  hasComparable(scope: string): boolean | Promise<boolean>
  /** Removes all entries, or those that requests of one key stored. */
  clear(keyId?: string): void | Promise<void>
  /** The number of entries. A store that several processes share may count only those of this process. */
  size(): StoreSize
  /** Lets one of several processes compute an answer that all of them need. @default each process computes it */
  readonly claims?: AnswerClaims
}

/** Claims on answers that are not stored yet. A claim expires, in case its process was killed. */
export interface AnswerClaims {
  /** Returns true for the one process that must compute the answer. */
  take(id: string, ttlMs: number): Promise<boolean>
  isTaken(id: string): Promise<boolean>
  /** Ends a claim of this process. */
  release(id: string): Promise<void>
  /**
   * Shared values, through which the process that has the claim publishes its stream. Absent: other processes wait for
   * the whole answer.
   */
  readonly values?: StreamValues
}

/** The methods of a store that publishing a stream needs. */
export type StreamValues = Pick<Store, 'get' | 'set' | 'swap'>

/** Turns texts into vectors of one length. A result that is ready is returned without a promise. */
export interface Embedder {
  readonly name: string
  readonly dimensions: number
  /** US dollars per million tokens. Only `savings.embedder` adds it to the actual cost of a request. @default 0 */
  readonly price?: number
  embed(texts: readonly string[], signal?: AbortSignal): readonly Float32Array[] | Promise<readonly Float32Array[]>
}

/** A stored vector that is similar to the query. */
export interface Neighbor {
  readonly id: string
  /** Cosine similarity, -1 to 1. */
  readonly similarity: number
}

/** Finds the stored vectors nearest to another within one scope. Vectors have length 1. Methods may return promises. */
export interface VectorIndex {
  add(entry: {
    readonly id: string
    readonly scope: string
    /** The key whose request stored the entry. An index that several keys share may bound what each of them adds. */
    readonly owner?: string
    readonly vector: Float32Array
    readonly expiresAt: number
  }): void | Promise<void>
  /** Returns vectors of at least `least` similarity, nearest first, at most `limit`. */
  nearest(
    scope: string,
    vector: Float32Array,
    options: { readonly least: number; readonly limit: number },
  ): readonly Neighbor[] | Promise<readonly Neighbor[]>
  remove(id: string): void | Promise<void>
  clear(): void | Promise<void>
  /** Returns one sentence for each guarantee that the storage cannot give as it is configured. */
  warnings?(): Promise<readonly string[]>
}
