/** A value with its owner and its size. */
export interface Shared<T> {
  readonly id: string
  readonly owner: string
  readonly bytes: number
  readonly value: T
}

export interface OwnerSharesOptions<T> {
  readonly maxEntries: number
  readonly maxBytes: number
  /** Called for each value that leaves, except when it is replaced. */
  readonly onRemove: (value: T) => void
}

export interface OwnerShares<T> {
  get(id: string): T | undefined
  /** Like `get`, but does not count as use. */
  peek(id: string): T | undefined
  /** Returns false when the value does not fit beside the smaller shares of other owners. */
  put(entry: Shared<T>): boolean
  /** Changes a value without counting as use. */
  replace(id: string, value: T): void
  remove(id: string): void
  clear(owner?: string): void
  size(): { readonly entries: number; readonly bytes: number }
}

/** The entries of one owner, least recently used first. */
interface Owner<T> {
  readonly entries: Map<string, Shared<T>>
  /** Goes on from the entry that was evicted last. A Map searched from its beginning passes over all that were deleted. */
  oldest: Iterator<Shared<T>, undefined>
  bytes: number
}

/**
 * A map bounded by count and bytes. When it is full, the owner with the greatest share loses its least recently used
 * entry. An owner with less than an equal share therefore never loses an entry to another.
 */
export function createOwnerShares<T>(options: OwnerSharesOptions<T>): OwnerShares<T> {
  const { maxEntries, maxBytes, onRemove } = options
  const entries = new Map<string, Shared<T>>()
  const owners = new Map<string, Owner<T>>()
  let bytes = 0

  const shareOf = (owner: Owner<T>): number => Math.max(owner.entries.size / maxEntries, owner.bytes / maxBytes)
  const detach = (entry: Shared<T>): void => {
    const owner = owners.get(entry.owner)
    entries.delete(entry.id)
    bytes -= entry.bytes
    if (owner === undefined) return
    owner.entries.delete(entry.id)
    owner.bytes -= entry.bytes
    if (owner.entries.size === 0) owners.delete(entry.owner)
  }
  const attach = (entry: Shared<T>): void => {
    const owner = owners.get(entry.owner) ?? newOwner<T>()
    owners.set(entry.owner, owner)
    owner.entries.set(entry.id, entry)
    owner.bytes += entry.bytes
    entries.set(entry.id, entry)
    bytes += entry.bytes
  }
  /** Moves the entry to the end of its owner's entries, and the owner to the end of the owners, for equal shares. */
  const touch = (entry: Shared<T>): void => {
    const owner = owners.get(entry.owner)
    if (owner === undefined) return
    owner.entries.delete(entry.id)
    owner.entries.set(entry.id, entry)
    owners.delete(entry.owner)
    owners.set(entry.owner, owner)
  }
  /** Scans the owners: it runs only while the map is full, once for each new value. */
  const greatestOwner = (): Owner<T> | undefined => {
    let greatest: Owner<T> | undefined
    for (const owner of owners.values()) {
      if (greatest === undefined || shareOf(owner) > shareOf(greatest)) greatest = owner
    }
    return greatest
  }
  const evict = (): void => {
    const owner = greatestOwner()
    const oldest = owner === undefined ? undefined : oldestOf(owner)
    if (oldest === undefined) return
    detach(oldest)
    onRemove(oldest.value)
  }

  return {
    get: (id) => {
      const entry = entries.get(id)
      if (entry === undefined) return undefined
      touch(entry)
      return entry.value
    },
    peek: (id) => entries.get(id)?.value,
    put: (entry) => {
      const old = entries.get(entry.id)
      if (old !== undefined) detach(old)
      if (entry.bytes > maxBytes) {
        onRemove(entry.value)
        return false
      }
      attach(entry)
      while (entries.size > maxEntries || bytes > maxBytes) evict()
      return entries.get(entry.id) === entry
    },
    replace: (id, value) => {
      const old = entries.get(id)
      if (old === undefined) return
      const entry = { ...old, value }
      entries.set(id, entry)
      owners.get(old.owner)?.entries.set(id, entry)
    },
    remove: (id) => {
      const entry = entries.get(id)
      if (entry === undefined) return
      detach(entry)
      onRemove(entry.value)
    },
    clear: (owner) => {
      const leaving = owner === undefined ? [...entries.values()] : [...(owners.get(owner)?.entries.values() ?? [])]
      for (const entry of leaving) {
        detach(entry)
        onRemove(entry.value)
      }
    },
    size: () => ({ entries: entries.size, bytes }),
  }
}

function newOwner<T>(): Owner<T> {
  const entries = new Map<string, Shared<T>>()
  return { entries, oldest: entries.values(), bytes: 0 }
}

function oldestOf<T>(owner: Owner<T>): Shared<T> | undefined {
  const next = owner.oldest.next()
  if (next.done !== true) return next.value
  // An iterator that has come to its end stays there.
  owner.oldest = owner.entries.values()
  return owner.oldest.next().value
}
