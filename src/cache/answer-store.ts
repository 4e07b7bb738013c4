import type { Completion } from '../core/answer.ts'
import type { AnswerStore, CachedAnswer } from '../core/cache-ports.ts'
import { asObject, type JsonObject } from '../core/json.ts'
import type { Native } from '../core/prompt.ts'

export interface MemoryAnswerStoreOptions {
  readonly maxEntries: number
  readonly maxBytes: number
  /** Returns the size of a comparable entry in the index, in bytes. */
  readonly indexBytes: (text: string) => number
  /** Called for each removed entry, and for each entry that is too large to store. Not called for replaced entries. */
  readonly onRemove: (answer: CachedAnswer) => void
}

/** Size of an entry without its strings, in bytes. */
const OVERHEAD_BYTES = 1024

interface Entry {
  readonly answer: CachedAnswer
  readonly bytes: number
}

/** The entries of one key, least recently used first. */
interface Owner {
  readonly entries: Map<string, Entry>
  /**
   * Iterator that continues after the last evicted entry. A new Map iterator would have to skip all deleted entries
   * again.
   */
  evictionOrder: Iterator<Entry, undefined>
  bytes: number
}

/**
 * Creates a store in memory, limited by count and bytes. When the store is full, the least recently used entry of the
 * owner with the largest share is evicted. An owner below an equal share therefore never loses entries to other owners.
 */
export function createMemoryAnswerStore(options: MemoryAnswerStoreOptions): AnswerStore {
  const { maxEntries, maxBytes, indexBytes, onRemove } = options
  const entries = new Map<string, Entry>()
  const owners = new Map<string, Owner>()
  /** Number of comparable entries, by scope. */
  const comparableCounts = new Map<string, number>()
  let bytes = 0

  const adjustCount = ({ answer }: Entry, change: number): void => {
    if (!answer.comparable) return
    const total = (comparableCounts.get(answer.scope) ?? 0) + change
    if (total > 0) comparableCounts.set(answer.scope, total)
    else comparableCounts.delete(answer.scope)
  }
  const attach = (entry: Entry): void => {
    const { id, keyId } = entry.answer
    const owner = owners.get(keyId) ?? newOwner()
    owners.set(keyId, owner)
    owner.entries.set(id, entry)
    owner.bytes += entry.bytes
    entries.set(id, entry)
    bytes += entry.bytes
    adjustCount(entry, 1)
  }
  const detach = (entry: Entry): void => {
    const { id, keyId } = entry.answer
    entries.delete(id)
    bytes -= entry.bytes
    adjustCount(entry, -1)
    const owner = owners.get(keyId)
    if (owner === undefined) return
    owner.entries.delete(id)
    owner.bytes -= entry.bytes
    if (owner.entries.size === 0) owners.delete(keyId)
  }
  const remove = (entry: Entry): void => {
    detach(entry)
    onRemove(entry.answer)
  }
  /**
   * Marks the entry and its owner as the most recently used. Among owners with equal shares, the least recently used
   * owner loses an entry.
   */
  const touch = (entry: Entry): void => {
    const { id, keyId } = entry.answer
    const owner = owners.get(keyId)
    if (owner === undefined) return
    owner.entries.delete(id)
    owner.entries.set(id, entry)
    owners.delete(keyId)
    owners.set(keyId, owner)
  }
  const shareOf = (owner: Owner): number => Math.max(owner.entries.size / maxEntries, owner.bytes / maxBytes)
  const evict = (): void => {
    let largest: Owner | undefined
    for (const owner of owners.values()) {
      if (largest === undefined || shareOf(owner) > shareOf(largest)) largest = owner
    }
    const oldest = largest === undefined ? undefined : oldestOf(largest)
    if (oldest !== undefined) remove(oldest)
  }

  return {
    get: (id) => {
      const entry = entries.get(id)
      if (entry !== undefined) touch(entry)
      return entry?.answer
    },
    peek: (id) => entries.get(id)?.answer,
    put: (answer) => {
      const old = entries.get(answer.id)
      if (old !== undefined) detach(old)
      const entry: Entry = {
        answer: { ...answer, completion: dropParsedValue(answer.completion) },
        bytes: bytesOf(answer) + (answer.comparable ? indexBytes(answer.text) : 0),
      }
      if (entry.bytes > maxBytes) {
        onRemove(entry.answer)
        return false
      }
      attach(entry)
      while (entries.size > maxEntries || bytes > maxBytes) evict()
      return entries.get(answer.id) === entry
    },
    amend: (id, changes) => {
      const old = entries.get(id)
      if (old === undefined) return
      const entry = { ...old, answer: { ...old.answer, ...changes } }
      entries.set(id, entry)
      owners.get(entry.answer.keyId)?.entries.set(id, entry)
    },
    remove: (id) => {
      const entry = entries.get(id)
      if (entry !== undefined) remove(entry)
    },
    hasComparable: (scope) => comparableCounts.has(scope),
    clear: (keyId) => {
      const cleared = keyId === undefined ? entries : owners.get(keyId)?.entries
      cleared?.forEach(remove)
    },
    size: () => ({ entries: entries.size, bytes }),
  }
}

function newOwner(): Owner {
  const entries = new Map<string, Entry>()
  return { entries, evictionOrder: entries.values(), bytes: 0 }
}

function oldestOf(owner: Owner): Entry | undefined {
  const next = owner.evictionOrder.next()
  if (next.done !== true) return next.value
  // An exhausted iterator never yields again, even if entries were added.
  owner.evictionOrder = owner.entries.values()
  return owner.evictionOrder.next().value
}

/**
 * Returns the size of an answer at two bytes per UTF-16 code unit. Native text counts twice, because it is parsed on
 * each access.
 */
function bytesOf({ id, text, completion }: CachedAnswer): number {
  const { native, parts } = completion
  let length = id.length + text.length
  for (const part of parts) length += 'text' in part ? part.text.length : 0
  if (native !== undefined) length += (native.text?.length ?? JSON.stringify(native.value).length) * 2
  return OVERHEAD_BYTES + 2 * length
}

/**
 * Stores the native answer only as JSON text, because the garbage collector would have to visit every object in a
 * parsed value.
 */
function dropParsedValue(completion: Completion): Completion {
  const { native } = completion
  return native?.text === undefined
    ? completion
    : { ...completion, native: new StoredNative(native.dialect, native.text) }
}

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
