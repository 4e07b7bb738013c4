import type { Completion } from '../core/answer.ts'
import type { AnswerStore, CachedAnswer } from '../core/cache-ports.ts'
import { asObject, type JsonObject } from '../core/json.ts'
import type { Native } from '../core/prompt.ts'
import { createOwnerShares, type Shared } from './owner-shares.ts'

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
