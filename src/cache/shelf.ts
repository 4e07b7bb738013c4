import { LRUCache } from 'lru-cache'
import type { Completion } from '../core/answer.ts'

/** One kept answer. */
export interface CachedAnswer {
  readonly id: string
  readonly scope: string
  /** The question, folded. */
  readonly text: string
  /** Whose request it was; the scope says who may find it. */
  readonly keyId: string
  readonly completion: Completion
  /** Tokens of the prompt as it came, before any tier made it smaller: what a hit would have cost. */
  readonly promptTokens: number
  /** Milliseconds since 1970. */
  readonly storedAt: number
  readonly expiresAt: number
  /** False where only the same text may hit. */
  readonly comparable: boolean
  /** The least similarity at which this entry answers another text: raised when a hit was reported as wrong. @default 0 */
  readonly threshold?: number
  /** The greatest similarity at which it did since the last report; 0 for none. @default 0 */
  readonly servedAt?: number
}

export interface ShelfSize {
  readonly entries: number
  readonly bytes: number
}

/**
 * Where answers are kept. The one in memory belongs to a process; one over a shared store can take its place.
 * A shelf that cannot answer rejects, which counts as a miss.
 */
export interface AnswerShelf {
  get(id: string): Promise<CachedAnswer | undefined>
  /** As `get`, but no use of the entry. @default get */
  peek?(id: string): Promise<CachedAnswer | undefined>
  /** False when there is no room for it. */
  put(answer: CachedAnswer): Promise<boolean>
  /** Changes what reports and hits teach about an entry, unless it is gone. */
  amend(id: string, lessons: Pick<CachedAnswer, 'threshold' | 'servedAt'>): Promise<void>
  remove(id: string): Promise<void>
  /** True when the scope has an entry whose text may be compared with another. */
  hasComparable(scope: string): Promise<boolean>
  /** Removes all entries, or those that requests of one key stored. */
  clear(keyId?: string): Promise<void>
  size(): ShelfSize
}

export interface MemoryShelfOptions {
  readonly maxEntries: number
  readonly maxBytes: number
  /** Bytes that an entry's vector takes elsewhere. */
  readonly vectorBytes: number
  /** Called for each entry that leaves. */
  readonly onRemove: (answer: CachedAnswer) => void
}

/** What an entry costs besides its texts. */
const OVERHEAD_BYTES = 1024

/** Answers in memory, bounded by count and bytes; the one used longest ago leaves first. */
export function createMemoryShelf(options: MemoryShelfOptions): AnswerShelf {
  const comparable = new Map<string, number>()
  const count = (answer: CachedAnswer, by: number): void => {
    if (!answer.comparable) return
    const left = (comparable.get(answer.scope) ?? 0) + by
    if (left > 0) comparable.set(answer.scope, left)
    else comparable.delete(answer.scope)
  }
  const answers = new LRUCache<string, CachedAnswer>({
    max: options.maxEntries,
    maxSize: options.maxBytes,
    sizeCalculation: (answer) => bytesOf(answer) + (answer.comparable ? options.vectorBytes : 0),
    dispose: (answer, _, reason) => {
      count(answer, -1)
      if (reason !== 'set') options.onRemove(answer)
    },
    onInsert: (answer) => count(answer, 1),
  })
  return {
    get: (id) => Promise.resolve(answers.get(id)),
    peek: (id) => Promise.resolve(answers.peek(id)),
    put: async (answer) => {
      answers.set(answer.id, answer)
      return answers.has(answer.id)
    },
    amend: async (id, lessons) => {
      const answer = answers.peek(id)
      if (answer !== undefined) answers.set(id, { ...answer, ...lessons })
    },
    remove: async (id) => {
      answers.delete(id)
    },
    hasComparable: (scope) => Promise.resolve(comparable.has(scope)),
    clear: async (keyId) => {
      for (const [id, answer] of Array.from(answers.entries())) {
        if (keyId === undefined || answer.keyId === keyId) answers.delete(id)
      }
    },
    size: () => ({ entries: answers.size, bytes: answers.calculatedSize }),
  }
}

/** Texts are two bytes a character at the most; a native answer holds its value and its text. */
function bytesOf(answer: CachedAnswer): number {
  const { native, parts } = answer.completion
  const said = parts.reduce((sum, part) => sum + ('text' in part ? part.text.length : 0), 0)
  const carried = native === undefined ? 0 : (native.text?.length ?? JSON.stringify(native.value).length) * 2
  return OVERHEAD_BYTES + 2 * (answer.id.length + answer.text.length + said + carried)
}
