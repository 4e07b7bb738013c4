import type { Completion } from '../core/answer.ts'
import { asObject, type JsonObject } from '../core/json.ts'
import type { Native } from '../core/prompt.ts'
import { createOwnerShares, type Shared } from './owner-shares.ts'

/** A stored answer. */
export interface CachedAnswer {
  readonly id: string
  readonly scope: string
  /** The question, normalized. */
  readonly text: string
  /** The key whose request stored it. The scope decides which requests find it. */
  readonly keyId: string
  readonly completion: Completion
  /** Tokens of the prompt as received, before any tier made it smaller: the size that a hit saves. */
  readonly promptTokens: number
  /** Milliseconds since 1970. */
  readonly storedAt: number
  readonly expiresAt: number
  /** False where only the same text may hit. */
  readonly comparable: boolean
  /** Minimum similarity at which this entry answers another text: raised by reports of wrong hits. @default 0 */
  readonly threshold?: number
  /** Maximum similarity at which it did since the last report; 0 for none. @default 0 */
  readonly servedAt?: number
}

export interface StoreSize {
  readonly entries: number
  readonly bytes: number
}

/**
 * Keeps answers. The memory store belongs to one process; a store over a shared database can replace it. A method that
 * rejects counts as a miss. Methods that need not wait return values, not promises.
 */
export interface AnswerStore {
  get(id: string): CachedAnswer | undefined | Promise<CachedAnswer | undefined>
  /** Like `get`, but does not count as use of the entry. @default get */
  peek?(id: string): CachedAnswer | undefined | Promise<CachedAnswer | undefined>
  /** Returns false when the answer does not fit. */
  put(answer: CachedAnswer): boolean | Promise<boolean>
  /** Changes thresholds of an entry, unless it is gone. */
  amend(id: string, changes: Pick<CachedAnswer, 'threshold' | 'servedAt'>): void | Promise<void>
  remove(id: string): void | Promise<void>
  /** Returns true when the scope has an entry whose text may be compared with another. */
  hasComparable(scope: string): boolean | Promise<boolean>
  /** Removes all entries, or those that requests of one key stored. */
  clear(keyId?: string): void | Promise<void>
  size(): StoreSize
}

export interface MemoryAnswerStoreOptions {
  readonly maxEntries: number
  readonly maxBytes: number
  /** Returns the bytes that a comparable entry takes in the index. */
  readonly indexBytes: (text: string) => number
  /** Called for each entry that leaves, except when it is replaced. */
  readonly onRemove: (answer: CachedAnswer) => void
}

/** Bytes of an entry besides its texts. */
const OVERHEAD_BYTES = 1024

/**
 * Keeps answers in memory, bounded by count and bytes. When the store is full, the key that uses most of it loses its
 * least recently used entry, so that one key cannot push out the entries of another.
 */
export function createMemoryAnswerStore(options: MemoryAnswerStoreOptions): AnswerStore {
  const comparable = new Map<string, number>()
  const count = (answer: CachedAnswer, by: number): void => {
    if (!answer.comparable) return
    const left = (comparable.get(answer.scope) ?? 0) + by
    if (left > 0) comparable.set(answer.scope, left)
    else comparable.delete(answer.scope)
  }
  const onRemove = (answer: CachedAnswer): void => {
    count(answer, -1)
    options.onRemove(answer)
  }
  const answers = createOwnerShares<CachedAnswer>({ ...options, onRemove })
  return {
    get: (id) => answers.get(id),
    peek: (id) => answers.peek(id),
    put: (answer) => {
      const old = answers.peek(answer.id)
      if (old !== undefined) count(old, -1)
      count(answer, 1)
      return answers.put(sharedOf(answer, options))
    },
    amend: (id, changes) => {
      const answer = answers.peek(id)
      if (answer !== undefined) answers.replace(id, { ...answer, ...changes })
    },
    remove: (id) => answers.remove(id),
    hasComparable: (scope) => comparable.has(scope),
    clear: (keyId) => answers.clear(keyId),
    size: () => answers.size(),
  }
}

/** Counts two bytes per character. A native answer counts twice: a reader of its value parses its text. */
function sharedOf(answer: CachedAnswer, { indexBytes }: MemoryAnswerStoreOptions): Shared<CachedAnswer> {
  const { id, text, completion, comparable, keyId } = answer
  const { native, parts } = completion
  let length = id.length + text.length
  for (const part of parts) length += 'text' in part ? part.text.length : 0
  if (native !== undefined) length += (native.text?.length ?? JSON.stringify(native.value).length) * 2
  const bytes = OVERHEAD_BYTES + 2 * length + (comparable ? indexBytes(text) : 0)
  return { id, owner: keyId, bytes, value: { ...answer, completion: withoutValue(completion) } }
}

/** The answer with its JSON text alone: a parsed value is many objects, which every collection would visit. */
function withoutValue(completion: Completion): Completion {
  const { native } = completion
  return native?.text === undefined
    ? completion
    : { ...completion, native: new StoredNative(native.dialect, native.text) }
}

/** A native whose value is parsed when it is read. */
class StoredNative implements Native {
  readonly dialect: Native['dialect']
  readonly text: string

  constructor(dialect: Native['dialect'], text: string) {
    this.dialect = dialect
    this.text = text
  }

  get value(): JsonObject {
    return asObject(JSON.parse(this.text)) ?? {}
  }
}
