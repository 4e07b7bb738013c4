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
}
