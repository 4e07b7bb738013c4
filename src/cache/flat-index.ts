import { GatewayError } from '../core/errors.ts'
import type { VectorIndex } from '../core/cache-ports.ts'
import { createPartition, type Partition, type StoredVector } from './partition.ts'
import { SIGNATURE_WORDS, createSigner } from './signature.ts'
import { tailLengthOf } from './vector-math.ts'

export interface FlatIndexOptions {
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Lets other work run: a search pauses every few milliseconds. @default never pauses */
  readonly pause?: () => Promise<void>
  /** @default 1024 */
  readonly dimensions?: number
  /** @default 100,000 */
  readonly maxEntries?: number
  /** Of vectors and signatures. @default 512 MiB */
  readonly maxBytes?: number
}

/** Bytes of an entry besides its vector and its signature. */
const OVERHEAD_BYTES = 400
/** Maximum number of expired entries that one `add` removes, so that no call takes long. */
const MAX_SWEPT = 4

/** Returns the bytes that a vector of so many dimensions takes in the index. */
export function indexBytesOf(dimensions: number): number {
  return dimensions * 4 + SIGNATURE_WORDS * 4 + OVERHEAD_BYTES
}

/**
 * Keeps vectors in memory, partitioned by scope, and finds neighbors by exact cosines. The entry that was found or added
 * longest ago leaves first. A neighbor is missed less than once in 10^10 (see `createSigner`).
 */
export function createFlatIndex(options: FlatIndexOptions): VectorIndex {
  const { now, dimensions = 1024, maxEntries = 100_000, maxBytes = 512 * 1024 * 1024 } = options
  const pause = options.pause ?? (() => Promise.resolve())
  const capacity = Math.min(maxEntries, Math.floor(maxBytes / indexBytesOf(dimensions)))
  const sign = createSigner(dimensions)
  const entries = new Map<string, StoredVector>()
  const partitions = new Map<string, Partition>()

  const check = (vector: Float32Array): void => {
    if (vector.length === dimensions) return
    throw new GatewayError('internal', `A vector has ${vector.length} numbers; this index holds ${dimensions}.`)
  }
  const remove = (entry: StoredVector): void => {
    entries.delete(entry.id)
    const partition = partitions.get(entry.scope)
    partition?.remove(entry)
    if (partition?.size() === 0) partitions.delete(entry.scope)
  }
  const evict = (): void => {
    let seen = 0
    for (const entry of entries.values()) {
      const isFull = entries.size >= capacity
      if (!isFull && seen >= MAX_SWEPT) return
      seen += 1
      if (isFull || entry.expiresAt <= now()) remove(entry)
    }
  }

  return {
    add: ({ id, scope, vector, expiresAt }) => {
      check(vector)
      const old = entries.get(id)
      if (old !== undefined) remove(old)
      evict()
      if (capacity < 1) return
      const entry = { id, scope, vector: vector.slice(), tailLength: tailLengthOf(vector), expiresAt, row: 0 }
      const partition = partitions.get(scope) ?? createPartition(sign)
      partitions.set(scope, partition)
      partition.add(entry)
      entries.set(id, entry)
    },
    nearest: (scope, vector, { least, limit }) => {
      check(vector)
      const partition = partitions.get(scope)
      if (partition === undefined || limit < 1) return []
      const found = partition.search({ vector, least, limit, now: now() }, pause)
      const alive = (neighbors: Awaited<typeof found>): Awaited<typeof found> => {
        const kept = neighbors.filter(({ id }) => entries.get(id)?.scope === scope)
        for (const { id } of kept.toReversed()) touch(entries, id)
        return kept
      }
      return found instanceof Promise ? found.then(alive) : alive(found)
    },
    remove: (id) => {
      const entry = entries.get(id)
      if (entry !== undefined) remove(entry)
    },
    clear: () => {
      entries.clear()
      partitions.clear()
    },
  }
}

/** Makes an entry the last one to leave. */
function touch(entries: Map<string, StoredVector>, id: string): void {
  const entry = entries.get(id)
  if (entry === undefined) return
  entries.delete(id)
  entries.set(id, entry)
}
