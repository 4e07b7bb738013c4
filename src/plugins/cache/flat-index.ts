import type { Neighbor, VectorIndex } from '../../core/cache.ts'
import { GatewayError } from '../../core/errors.ts'
import { bytesPerVector } from './vector-search.ts'
import { mix } from './typos.ts'

export interface FlatIndexOptions {
  readonly now: () => number
  readonly pause: () => Promise<void>
  readonly dimensions: number
  readonly maxEntries: number
  readonly maxBytes: number
}

const MAX_EXPIRY_CHECKS = 4

/** Ranks neighbors by exact cosine. The probability of missing a neighbor is below 10^-6. */
export function createFlatIndex({ now, pause, dimensions, maxEntries, maxBytes }: FlatIndexOptions): VectorIndex {
  const capacity = Math.min(maxEntries, Math.floor(maxBytes / bytesPerVector(dimensions)))
  const sign = createSigner(dimensions)
  const entries = new Map<string, StoredVector>()
  const partitions = new Map<string, Partition>()

  const checkDimensions = (vector: Float32Array): void => {
    if (vector.length === dimensions) return
    throw new GatewayError(
      'internal',
      `A vector has ${vector.length} dimensions; the index expects ${dimensions}. Set the dimensions of the index to those of the embedder.`,
    )
  }
  const remove = (entry: StoredVector): void => {
    entries.delete(entry.id)
    removeRow(entry)
    if (entry.partition.size === 0) partitions.delete(entry.scope)
  }
  const evict = (): void => {
    let checkedCount = 0
    for (const entry of entries.values()) {
      const isFull = entries.size >= capacity
      if (!isFull && checkedCount >= MAX_EXPIRY_CHECKS) return
      checkedCount += 1
      if (isFull || entry.expiresAt <= now()) remove(entry)
    }
  }
  /** Marks neighbors as used. Drops those that were removed during the search. */
  const touch = (neighbors: readonly Neighbor[]): readonly Neighbor[] => {
    const present = neighbors.filter(({ id }) => entries.has(id))
    for (const { id } of present.toReversed()) {
      const entry = entries.get(id)
      entries.delete(id)
      if (entry !== undefined) entries.set(id, entry)
    }
    return present
  }

  return {
    add: ({ id, scope, vector, expiresAt }) => {
      checkDimensions(vector)
      const old = entries.get(id)
      if (old !== undefined) remove(old)
      evict()
      if (capacity < 1) return
      const partition = partitions.get(scope) ?? { rows: [], signatures: new Uint32Array(0), signedCount: 0, size: 0 }
      partitions.set(scope, partition)
      const row = partition.rows.length
      const entry = { id, scope, vector: vector.slice(), tailNorm: tailNormOf(vector), expiresAt, partition, row }
      addRow(entry, sign)
      entries.set(id, entry)
    },
    nearest: (scope, vector, { minSimilarity, limit }) => {
      checkDimensions(vector)
      const partition = partitions.get(scope)
      if (partition === undefined || limit < 1) return []
      const search = startSearch(partition, { vector, minSimilarity, limit, now: now() }, sign)
      const row = searchSlice(search, 0)
      return row === search.rowCount ? touch(search.best) : searchRest(search, row, pause).then(touch)
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

interface StoredVector {
  readonly id: string
  readonly scope: string
  readonly vector: Float32Array
  readonly tailNorm: number
  readonly expiresAt: number
  readonly partition: Partition
  row: number
}

/** A search keeps the arrays with which it began, because `compact` replaces them. */
interface Partition {
  rows: (StoredVector | undefined)[]
  signatures: Uint32Array
  signedCount: number
  size: number
}

function addRow(entry: StoredVector, sign: Signer): void {
  const { partition } = entry
  partition.rows.push(entry)
  partition.size += 1
  if (partition.rows.length > MIN_SIGNED_ROWS / 2) for (let count = 0; count < 2; count += 1) signNext(partition, sign)
}

/** Called twice per row added to a large partition, because signing all its rows at once would block the event loop. */
function signNext(partition: Partition, sign: Signer): void {
  const { rows, signatures, signedCount } = partition
  if (signedCount === rows.length) return
  const offset = signedCount * SIGNATURE_WORDS
  if (offset >= signatures.length) {
    partition.signatures = new Uint32Array(Math.max(MIN_SIGNED_ROWS * SIGNATURE_WORDS, offset * 2))
    partition.signatures.set(signatures)
  }
  const entry = rows[signedCount]
  if (entry !== undefined) partition.signatures.set(sign(entry.vector), offset)
  partition.signedCount += 1
}

function removeRow({ partition, row }: StoredVector): void {
  partition.rows[row] = undefined
  partition.size -= 1
  if (partition.size * 2 < partition.rows.length) compact(partition)
}

function compact(partition: Partition): void {
  const rows = partition.rows.filter((entry) => entry !== undefined)
  const signedCount = rows.filter(({ row }) => row < partition.signedCount).length
  const signatures = new Uint32Array(signedCount * SIGNATURE_WORDS)
  rows.forEach((entry, row) => {
    const from = entry.row * SIGNATURE_WORDS
    const signature = partition.signatures.subarray(from, from + SIGNATURE_WORDS)
    if (row < signedCount) signatures.set(signature, row * SIGNATURE_WORDS)
    entry.row = row
  })
  Object.assign(partition, { rows, signatures, signedCount })
}

interface VectorQuery {
  readonly vector: Float32Array
  readonly minSimilarity: number
  readonly limit: number
  readonly now: number
}

interface Search extends Pick<Partition, 'rows' | 'signatures' | 'signedCount'> {
  readonly query: VectorQuery
  readonly tailNorm: number
  /** Number of rows when the search began. */
  readonly rowCount: number
  readonly signature: Uint32Array | undefined
  /** Maximum number of differing bits in the first signature words, by index of the last of these words. */
  readonly bitLimits: readonly number[]
  readonly best: Neighbor[]
}

/** With fewer signed rows, comparing all vectors is cheaper. */
const MIN_SIGNED_ROWS = 256
const VECTOR_COST = 60
const SIGNATURE_COST = 2
/** Work between two pauses, in the unit of these costs: about 3 ms. */
const SLICE_WORK = 200_000
/** Tolerance for rounding errors in the bound. */
const ROUNDING = 1e-5

function startSearch({ rows, signatures, signedCount }: Partition, query: VectorQuery, sign: Signer): Search {
  const rowCount = rows.length
  const tailNorm = tailNormOf(query.vector)
  const signature = signedCount < MIN_SIGNED_ROWS ? undefined : sign(query.vector)
  const bitLimits = signature === undefined ? [] : bitLimitsOf(query.minSimilarity)
  return { query, tailNorm, rows, rowCount, signatures, signedCount, signature, bitLimits, best: [] }
}

async function searchRest(search: Search, from: number, pause: () => Promise<void>): Promise<readonly Neighbor[]> {
  for (let row = from; row < search.rowCount; row = searchSlice(search, row)) await pause()
  return search.best
}

function searchSlice(search: Search, from: number): number {
  const { rows, rowCount, signature, signedCount } = search
  let row = from
  for (let work = 0; row < rowCount && work < SLICE_WORK; row += 1) {
    const isNear = signature === undefined || row >= signedCount || hasNearSignature(search, row, signature)
    work += isNear ? VECTOR_COST : SIGNATURE_COST
    if (isNear) compare(rows[row], search)
  }
  return row
}

function hasNearSignature({ signatures, bitLimits }: Search, row: number, signature: Uint32Array): boolean {
  const offset = row * SIGNATURE_WORDS
  let differingBits = 0
  for (let word = 0; word < SIGNATURE_WORDS; word += 1) {
    differingBits += countOnes((signatures[offset + word] ?? 0) ^ (signature[word] ?? 0))
    if (differingBits > (bitLimits[word] ?? 0)) return false
  }
  return true
}

function compare(entry: StoredVector | undefined, search: Search): void {
  const { query, tailNorm, best } = search
  const { vector, minSimilarity, limit, now } = query
  if (entry === undefined || entry.expiresAt <= now) return
  const head = vector.length >>> 2
  const headProduct = dotProduct(entry.vector, vector, 0, head)
  // The norms of the tails bound the product of the tails. Few vectors need all dimensions.
  if (headProduct + tailNorm * entry.tailNorm < minSimilarity - ROUNDING) return
  const similarity = headProduct + dotProduct(entry.vector, vector, head)
  if (similarity < minSimilarity) return
  const position = best.findIndex((neighbor) => neighbor.similarity < similarity)
  best.splice(position < 0 ? best.length : position, 0, { id: entry.id, similarity })
  if (best.length > limit) best.pop()
}

function tailNormOf(vector: Float32Array): number {
  return Math.sqrt(dotProduct(vector, vector, vector.length >>> 2))
}

export function dotProduct(left: Float32Array, right: Float32Array, from: number, to: number = left.length): number {
  let [a, b, c, d] = [0, 0, 0, 0]
  const end = to - ((to - from) % 4)
  for (let index = from; index < end; index += 4) {
    a += (left[index] ?? 0) * (right[index] ?? 0)
    b += (left[index + 1] ?? 0) * (right[index + 1] ?? 0)
    c += (left[index + 2] ?? 0) * (right[index + 2] ?? 0)
    d += (left[index + 3] ?? 0) * (right[index + 3] ?? 0)
  }
  for (let index = end; index < to; index += 1) a += (left[index] ?? 0) * (right[index] ?? 0)
  return a + b + (c + d)
}

const SIGNATURE_WORDS = 32
const SIGNATURE_BITS = SIGNATURE_WORDS * 32
const ROUNDS = 3
/** In standard deviations. */
const DEVIATIONS = 6.5
/** Prevents rounding errors from rejecting equal vectors. */
const SLACK_BITS = 2

/** The signs of projections onto 1024 random directions. Two vectors differ in a bit with probability angle / π. */
type Signer = (vector: Float32Array) => Uint32Array

/** For 1024 dimensions, a randomized Hadamard transform takes 30,000 additions instead of a million multiplications. */
function createSigner(dimensions: number): Signer {
  const size = Math.max(SIGNATURE_BITS, 2 ** Math.ceil(Math.log2(dimensions)))
  const signs = Float32Array.from({ length: size * ROUNDS }, (_, index) => ((mix(index + 1) & 1) === 0 ? 1 : -1))
  return (vector) => {
    const work = new Float32Array(size)
    work.set(vector)
    for (let round = 0; round < ROUNDS; round += 1) {
      for (let index = 0; index < size; index += 1) {
        work[index] = (work[index] ?? 0) * (signs[round * size + index] ?? 1)
      }
      hadamard(work)
    }
    const signature = new Uint32Array(SIGNATURE_WORDS)
    for (let bit = 0; bit < SIGNATURE_BITS; bit += 1) {
      if ((work[bit] ?? 0) >= 0) signature[bit >>> 5] = (signature[bit >>> 5] ?? 0) | (1 << (bit & 31))
    }
    return signature
  }
}

function hadamard(values: Float32Array): void {
  for (let half = 1; half < values.length; half *= 2) {
    for (let start = 0; start < values.length; start += half * 2) {
      for (let index = start; index < start + half; index += 1) {
        const [a, b] = [values[index] ?? 0, values[index + half] ?? 0]
        values[index] = a + b
        values[index + half] = a - b
      }
    }
  }
}

/** Returns how many bits may differ in the first 1, 2 … 32 signature words of two vectors with at least this cosine. */
function bitLimitsOf(minSimilarity: number): readonly number[] {
  const probability = Math.acos(Math.min(1, Math.max(-1, minSimilarity))) / Math.PI
  return Array.from({ length: SIGNATURE_WORDS }, (_, word) => {
    const bits = (word + 1) * 32
    const deviation = Math.sqrt(bits * probability * (1 - probability))
    return Math.min(bits, Math.ceil(bits * probability + DEVIATIONS * deviation) + SLACK_BITS)
  })
}

function countOnes(value: number): number {
  let bits = value - ((value >>> 1) & 0x55555555)
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333)
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}
