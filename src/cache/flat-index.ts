import { GatewayError } from '../core/errors.ts'
import type { VectorIndex } from '../core/cache-ports.ts'
import { SIGNATURE_WORDS, createSigner } from './hashing.ts'
import { createPartition, tailLengthOf, type Partition, type StoredVector } from './partition.ts'

export interface FlatIndexOptions {
  /** Returns the current time in milliseconds since 1970. */
  readonly now: () => number
  /** Yields to the event loop. Called every few milliseconds during a search. @default resolves immediately */
  readonly pause?: () => Promise<void>
  /** Length of the vectors. @default 1024 */
  readonly dimensions?: number
  /** Maximum number of entries. @default 100,000 */
  readonly maxEntries?: number
  /** Maximum size of vectors and signatures, in bytes. @default 512 MiB */
  readonly maxBytes?: number
}

/** Bytes of an entry besides its vector and its signature. */
const OVERHEAD_BYTES = 400
/** Maximum number of expired entries that one `add` removes, which limits its duration. */
const MAX_SWEPT = 4

/** Returns the bytes of an entry in the index. */
export function indexBytesOf(dimensions: number): number {
  return dimensions * 4 + SIGNATURE_WORDS * 4 + OVERHEAD_BYTES
}

/**
 * Creates an index in memory, partitioned by scope, that finds neighbors by exact cosines. When the index is full, the
 * least recently found or added entry is removed. The probability of missing a neighbor is below 10^-10 (see
 * `createSigner`).
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
    throw new GatewayError(
      'internal',
      `A vector has ${vector.length} numbers; this index requires ${dimensions}. Set \`dimensions\` to the dimensions of the embedder.`,
    )
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
        const present = neighbors.filter(({ id }) => entries.get(id)?.scope === scope)
        for (const { id } of present.toReversed()) touch(entries, id)
        return present
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

/** Marks an entry as the most recently used. */
function touch(entries: Map<string, StoredVector>, id: string): void {
  const entry = entries.get(id)
  if (entry === undefined) return
  entries.delete(id)
  entries.set(id, entry)
}
