import type { MaybePromise } from '../core/async.ts'
import type { Neighbor } from '../core/cache-ports.ts'
import { SIGNATURE_WORDS, countOnes, maxDifferentBits, type Signer } from './hashing.ts'

export interface StoredVector {
  readonly id: string
  readonly scope: string
  readonly vector: Float32Array
  readonly tailNorm: number
  readonly expiresAt: number
  row: number
}

export interface VectorQuery {
  readonly vector: Float32Array
  readonly minSimilarity: number
  readonly limit: number
  readonly now: number
}

/** Minimum number of rows for comparing signatures. With fewer rows, comparing all vectors is cheaper. */
const MIN_SIGNED_ROWS = 256
/** Number of signature words compared first. One array contains these words for all rows. */
const FIRST_WORDS = 2
const OTHER_WORDS = SIGNATURE_WORDS - FIRST_WORDS
/** Number of words compared by the end of each stage. A vector that fails a stage is skipped. */
const STAGES = [FIRST_WORDS, 8, SIGNATURE_WORDS] as const
/** Cost of the later stages for one row. The first stage costs 1. */
const STAGE_COST = 6
const EXACT_COST = 60
/** Work between two pauses, in the unit of these costs: about 3 ms. */
const SLICE_WORK = 200_000
/** Prevents rounding from rejecting a vector whose similarity is exactly the minimum. */
const ROUNDING = 1e-5

export interface Partition {
  size(): number
  add(entry: StoredVector): void
  remove(entry: StoredVector): void
  /** Returns vectors with at least the minimum similarity, nearest first. May miss vectors added during a pause. */
  search(query: VectorQuery, pause: () => Promise<void>): MaybePromise<readonly Neighbor[]>
}

/** Rows are not moved during a search, because the search would miss a vector that moves. */
interface Rows {
  entries: (StoredVector | undefined)[]
  signedCount: number
  firstWords: Uint32Array
  otherWords: Uint32Array
}

/**
 * Creates a partition. A search of many vectors compares signatures first, and computes cosines only for near
 * signatures.
 */
export function createPartition(sign: Signer): Partition {
  const rows: Rows = { entries: [], signedCount: 0, firstWords: new Uint32Array(0), otherWords: new Uint32Array(0) }
  let emptyRows = 0
  let activeSearches = 0
  const compactWhenIdle = (): void => {
    if (activeSearches > 0 || emptyRows * 2 <= rows.entries.length) return
    compact(rows)
    emptyRows = 0
  }
  const finish = (): void => {
    activeSearches -= 1
    compactWhenIdle()
  }
  return {
    size: () => rows.entries.length - emptyRows,
    add: (entry) => {
      entry.row = rows.entries.length
      rows.entries.push(entry)
      if (rows.entries.length > MIN_SIGNED_ROWS / 2) signNext(rows, sign)
    },
    remove: (entry) => {
      rows.entries[entry.row] = undefined
      emptyRows += 1
      compactWhenIdle()
    },
    search: (query, pause) => {
      activeSearches += 1
      const result = scan(rows, query, sign, pause)
      if (result instanceof Promise) return result.finally(finish)
      finish()
      return result
    },
  }
}

/** Signs two rows per new row, because signing all rows of a scope in one call would block the event loop. */
function signNext(rows: Rows, sign: Signer): void {
  const signature = new Uint32Array(SIGNATURE_WORDS)
  for (let count = 0; count < 2 && rows.signedCount < rows.entries.length; count += 1) {
    const row = rows.signedCount
    if ((row + 1) * FIRST_WORDS > rows.firstWords.length) {
      rows.firstWords = grow(rows.firstWords, Math.max(MIN_SIGNED_ROWS, row * 2) * FIRST_WORDS)
      rows.otherWords = grow(rows.otherWords, Math.max(MIN_SIGNED_ROWS, row * 2) * OTHER_WORDS)
    }
    const entry = rows.entries[row]
    if (entry !== undefined) sign(entry.vector, signature)
    rows.firstWords.set(signature.subarray(0, FIRST_WORDS), row * FIRST_WORDS)
    rows.otherWords.set(signature.subarray(FIRST_WORDS), row * OTHER_WORDS)
    rows.signedCount += 1
  }
}

function compact(rows: Rows): void {
  const entries = rows.entries.filter((entry) => entry !== undefined)
  let signed = 0
  entries.forEach((entry, row) => {
    if (entry.row < rows.signedCount) {
      rows.firstWords.copyWithin(row * FIRST_WORDS, entry.row * FIRST_WORDS, (entry.row + 1) * FIRST_WORDS)
      rows.otherWords.copyWithin(row * OTHER_WORDS, entry.row * OTHER_WORDS, (entry.row + 1) * OTHER_WORDS)
      signed += 1
    }
    entry.row = row
  })
  rows.entries = entries
  rows.signedCount = signed
}

interface Scan {
  readonly query: VectorQuery
  readonly tailNorm: number
  /** Undefined if the partition is too small for signatures. */
  readonly signature: Uint32Array | undefined
  readonly maxDifferingBits: readonly number[]
  readonly best: Neighbor[]
  readonly end: number
}

function scan(
  rows: Rows,
  query: VectorQuery,
  sign: Signer,
  pause: () => Promise<void>,
): MaybePromise<readonly Neighbor[]> {
  const isSigned = rows.signedCount >= MIN_SIGNED_ROWS
  const signature = isSigned ? new Uint32Array(SIGNATURE_WORDS) : undefined
  if (signature !== undefined) sign(query.vector, signature)
  const state: Scan = {
    query,
    tailNorm: tailNormOf(query.vector),
    signature,
    maxDifferingBits: isSigned ? STAGES.map((words) => maxDifferentBits(query.minSimilarity, words)) : [],
    best: [],
    end: rows.entries.length,
  }
  const row = scanSlice(rows, state, 0)
  return row < state.end ? scanRest(rows, state, row, pause) : state.best
}

async function scanRest(
  rows: Rows,
  state: Scan,
  from: number,
  pause: () => Promise<void>,
): Promise<readonly Neighbor[]> {
  for (let row = from; row < state.end;) {
    await pause()
    row = scanSlice(rows, state, row)
  }
  return state.best
}

function scanSlice(rows: Rows, state: Scan, from: number): number {
  const { firstWords, otherWords, signedCount } = rows
  const { signature, maxDifferingBits, end } = state
  const [firstWord = 0, secondWord = 0] = signature ?? []
  const maxFirstBits = maxDifferingBits[0] ?? 0
  let work = 0
  let row = from
  for (; row < end && work < SLICE_WORK; row += 1) {
    if (signature === undefined || row >= signedCount) {
      work += EXACT_COST
      compare(rows.entries[row], state)
      continue
    }
    const offset = row * FIRST_WORDS
    const differingBits =
      countOnes((firstWords[offset] ?? 0) ^ firstWord) + countOnes((firstWords[offset + 1] ?? 0) ^ secondWord)
    work += 1
    if (differingBits > maxFirstBits) continue
    const isNear = hasNearSignature(otherWords, row, { signature, differingBits, maxDifferingBits })
    work += isNear ? EXACT_COST : STAGE_COST
    if (isNear) compare(rows.entries[row], state)
  }
  return row
}

interface ComparisonState {
  readonly signature: Uint32Array
  readonly differingBits: number
  readonly maxDifferingBits: readonly number[]
}

function hasNearSignature(otherWords: Uint32Array, row: number, comparison: ComparisonState): boolean {
  const offset = row * OTHER_WORDS - FIRST_WORDS
  let { differingBits } = comparison
  let word = FIRST_WORDS
  for (let index = 1; index < STAGES.length; index += 1) {
    const end = STAGES[index] ?? 0
    for (; word < end; word += 1)
      differingBits += countOnes((otherWords[offset + word] ?? 0) ^ (comparison.signature[word] ?? 0))
    if (differingBits > (comparison.maxDifferingBits[index] ?? 0)) return false
  }
  return true
}

/**
 * Computes the dot product of the heads first. Together with the norms of the tails, it bounds the cosine, so few vectors
 * need the product of the tails.
 */
function compare(entry: StoredVector | undefined, { query, tailNorm, best }: Scan): void {
  if (entry === undefined || entry.expiresAt <= query.now) return
  const head = headDimensions(query.vector.length)
  const headProduct = dotProduct(entry.vector, query.vector, 0, head)
  if (headProduct + tailNorm * entry.tailNorm < query.minSimilarity - ROUNDING) return
  const similarity = headProduct + dotProduct(entry.vector, query.vector, head, query.vector.length)
  if (similarity >= query.minSimilarity) insert(best, { id: entry.id, similarity }, query.limit)
}

function insert(best: Neighbor[], neighbor: Neighbor, limit: number): void {
  const last = best.at(-1)
  if (best.length >= limit && (last === undefined || neighbor.similarity <= last.similarity)) return
  const position = best.findIndex((existing) => existing.similarity < neighbor.similarity)
  best.splice(position < 0 ? best.length : position, 0, neighbor)
  if (best.length > limit) best.pop()
}

function grow(array: Uint32Array, length: number): Uint32Array {
  const larger = new Uint32Array(length)
  larger.set(array)
  return larger
}

/** Returns the norm of the dimensions after the head. */
export function tailNormOf(vector: Float32Array): number {
  const head = headDimensions(vector.length)
  return Math.sqrt(dotProduct(vector, vector, head, vector.length))
}

export function headDimensions(dimensions: number): number {
  return dimensions < 64 ? dimensions : dimensions >>> 2
}

export function dotProduct(left: Float32Array, right: Float32Array, from: number, to: number): number {
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
