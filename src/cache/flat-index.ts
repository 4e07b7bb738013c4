import { GatewayError } from '../core/errors.ts'
import type { VectorIndex } from '../core/ports.ts'
import { createPartition, type Partition, type Stored } from './partition.ts'
import { SKETCH_WORDS, createSketcher } from './sketch.ts'

export interface FlatIndexOptions {
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Lets other work run: a search pauses every few milliseconds. @default never pauses */
  readonly pause?: () => Promise<void>
  /** @default 1024 */
  readonly dimensions?: number
  /** @default 100,000 */
  readonly maxEntries?: number
  /** Of vectors and sketches. @default 512 MiB */
  readonly maxBytes?: number
}

/** What an entry costs besides its vector and its sketch: the objects and strings around them. */
const OVERHEAD_BYTES = 400
/** Expired entries that one `add` removes at the most, so that no call takes long. */
const SWEEP = 4

/**
 * Vectors in memory, partitioned by scope, with exact cosines. The entry that was found or added longest ago leaves first.
 * A neighbour is overlooked less than once in 10^10 (see `createSketcher`).
 */
export function createFlatIndex(options: FlatIndexOptions): VectorIndex {
  const { now, dimensions = 1024, maxEntries = 100_000, maxBytes = 512 * 1024 * 1024 } = options
  const pause = options.pause ?? (() => Promise.resolve())
  const bytesOfEntry = dimensions * 4 + SKETCH_WORDS * 4 + OVERHEAD_BYTES
  const most = Math.min(maxEntries, Math.floor(maxBytes / bytesOfEntry))
  const sketcher = createSketcher(dimensions)
  const entries = new Map<string, Stored>()
  const partitions = new Map<string, Partition>()

  const sketchOf = (vector: Float32Array): Uint32Array => {
    if (vector.length !== dimensions) {
      throw new GatewayError('internal', `A vector has ${vector.length} numbers; this index holds ${dimensions}.`)
    }
    const sketch = new Uint32Array(SKETCH_WORDS)
    sketcher(vector, sketch, 0)
    return sketch
  }
  const forget = (entry: Stored): void => {
    entries.delete(entry.id)
    const partition = partitions.get(entry.scope)
    partition?.remove(entry)
    if (partition?.size() === 0) partitions.delete(entry.scope)
  }
  const makeRoom = (): void => {
    let looked = 0
    for (const entry of entries.values()) {
      const full = entries.size >= most
      if (!full && looked >= SWEEP) return
      looked += 1
      if (full || entry.expiresAt <= now()) forget(entry)
    }
  }

  return {
    add: async ({ id, scope, vector, expiresAt }) => {
      const sketch = sketchOf(vector)
      const old = entries.get(id)
      if (old !== undefined) forget(old)
      makeRoom()
      if (most < 1) return
      const entry: Stored = { id, scope, vector: vector.slice(), expiresAt, slot: 0 }
      const partition = partitions.get(scope) ?? createPartition()
      partitions.set(scope, partition)
      partition.add(entry, sketch)
      entries.set(id, entry)
    },
    nearest: async (scope, vector, { least, limit }) => {
      const sketch = sketchOf(vector)
      const partition = partitions.get(scope)
      if (partition === undefined || limit < 1) return []
      const found = await partition.search({ vector, sketch, least, limit, now: now() }, pause)
      const alive = found.filter(({ id }) => entries.get(id)?.scope === scope)
      for (const { id } of alive.toReversed()) touch(entries, id)
      return alive
    },
    remove: async (id) => {
      const entry = entries.get(id)
      if (entry !== undefined) forget(entry)
    },
    clear: async () => {
      entries.clear()
      partitions.clear()
    },
  }
}

/** Makes an entry the last one to leave. */
function touch(entries: Map<string, Stored>, id: string): void {
  const entry = entries.get(id)
  if (entry === undefined) return
  entries.delete(id)
  entries.set(id, entry)
}
