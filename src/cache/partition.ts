import type { Neighbour } from '../core/ports.ts'
import { SKETCH_WORDS, countOnes, mostDifferentBits } from './sketch.ts'

/** One stored vector and where it stands. */
export interface Stored {
  readonly id: string
  readonly scope: string
  readonly vector: Float32Array
  readonly expiresAt: number
  slot: number
}

export interface Search {
  readonly vector: Float32Array
  readonly sketch: Uint32Array
  readonly least: number
  readonly limit: number
  readonly now: number
}

/** The words of a sketch that are looked at first, lying side by side for all vectors. */
const FIRST_WORDS = 2
const REST_WORDS = SKETCH_WORDS - FIRST_WORDS
/** How many words are looked at; each further look is had only by what is near enough at the one before. */
const STAGES = [FIRST_WORDS, 8, SKETCH_WORDS] as const
/** What a whole sketch and an exact comparison cost, in first looks. */
const STAGE_COST = 6
const EXACT_COST = 60
/** How much is done between two pauses: about 3 ms. */
const SLICE = 200_000

/** The vectors of one scope. */
export interface Partition {
  /** How many vectors it holds. */
  readonly size: () => number
  add(entry: Stored, sketch: Uint32Array): void
  remove(entry: Stored): void
  /** Those of at least the least similarity, nearest first. Entries that are added meanwhile may be missed, no others. */
  search(search: Search, pause: () => Promise<void>): Promise<readonly Neighbour[]>
}

/**
 * A search looks at the sketches, which lie side by side, and computes the cosine of the few vectors whose sketch is near
 * enough.
 */
export function createPartition(): Partition {
  const rows: Rows = { entries: [], first: new Uint32Array(4 * FIRST_WORDS), rest: new Uint32Array(4 * REST_WORDS) }
  let empty = 0
  let searches = 0
  const tidy = (): void => {
    if (searches > 0 || empty * 2 <= rows.entries.length) return
    closeGaps(rows)
    empty = 0
  }
  return {
    size: () => rows.entries.length - empty,
    add: (entry, sketch) => append(rows, entry, sketch),
    remove: (entry) => {
      rows.entries[entry.slot] = undefined
      empty += 1
      tidy()
    },
    search: async (search, pause) => {
      searches += 1
      try {
        return await scan(rows, search, pause)
      } finally {
        searches -= 1
        tidy()
      }
    },
  }
}

/** Places of removed vectors are empty until no search is under way: a search never misses one that was moved. */
interface Rows {
  entries: (Stored | undefined)[]
  first: Uint32Array
  rest: Uint32Array
}

function append(rows: Rows, entry: Stored, sketch: Uint32Array): void {
  const slot = rows.entries.length
  if ((slot + 1) * FIRST_WORDS > rows.first.length) {
    rows.first = enlarged(rows.first, slot * 2 * FIRST_WORDS)
    rows.rest = enlarged(rows.rest, slot * 2 * REST_WORDS)
  }
  rows.entries.push(entry)
  entry.slot = slot
  rows.first.set(sketch.subarray(0, FIRST_WORDS), slot * FIRST_WORDS)
  rows.rest.set(sketch.subarray(FIRST_WORDS), slot * REST_WORDS)
}

function closeGaps(rows: Rows): void {
  const kept = rows.entries.filter((entry) => entry !== undefined)
  kept.forEach((entry, slot) => {
    rows.first.copyWithin(slot * FIRST_WORDS, entry.slot * FIRST_WORDS, (entry.slot + 1) * FIRST_WORDS)
    rows.rest.copyWithin(slot * REST_WORDS, entry.slot * REST_WORDS, (entry.slot + 1) * REST_WORDS)
    entry.slot = slot
  })
  rows.entries = kept
}

async function scan(rows: Rows, search: Search, pause: () => Promise<void>): Promise<readonly Neighbour[]> {
  const best = createBest(search.limit)
  const most = STAGES.map((words) => mostDifferentBits(search.least, words))
  const end = rows.entries.length
  for (let slot = 0; slot < end;) {
    slot = scanSlice(rows, search, { from: slot, end, most, best })
    if (slot < end) await pause()
  }
  return best.list()
}

interface Slice {
  readonly from: number
  readonly end: number
  /** How many bits may differ at each stage. */
  readonly most: readonly number[]
  readonly best: Best
}

/** Looks at as many vectors as a few milliseconds allow; answers where the next slice begins. */
function scanSlice(rows: Rows, search: Search, { from, end, most, best }: Slice): number {
  const { first, rest } = rows
  const [one = 0, two = 0] = search.sketch
  const mostFirst = most[0] ?? 0
  let work = 0
  let slot = from
  for (; slot < end && work < SLICE; slot += 1) {
    const place = slot * FIRST_WORDS
    const different = countOnes((first[place] ?? 0) ^ one) + countOnes((first[place + 1] ?? 0) ^ two)
    work += 1
    if (different > mostFirst) continue
    const near = isNear(rest, slot, { sketch: search.sketch, different, most })
    work += near ? EXACT_COST : STAGE_COST
    if (near) compare(rows.entries[slot], search, best)
  }
  return slot
}

interface FirstLook {
  readonly sketch: Uint32Array
  readonly different: number
  readonly most: readonly number[]
}

function isNear(rest: Uint32Array, slot: number, look: FirstLook): boolean {
  const place = slot * REST_WORDS - FIRST_WORDS
  let { different } = look
  let word = FIRST_WORDS
  for (let stage = 1; stage < STAGES.length; stage += 1) {
    const end = STAGES[stage] ?? 0
    for (; word < end; word += 1) different += countOnes((rest[place + word] ?? 0) ^ (look.sketch[word] ?? 0))
    if (different > (look.most[stage] ?? 0)) return false
  }
  return true
}

function compare(entry: Stored | undefined, search: Search, best: Best): void {
  if (entry === undefined || entry.expiresAt <= search.now) return
  const similarity = cosine(entry.vector, search.vector)
  if (similarity >= search.least) best.offer({ id: entry.id, similarity })
}

function enlarged(array: Uint32Array, length: number): Uint32Array {
  const larger = new Uint32Array(length)
  larger.set(array)
  return larger
}

/** The cosine of two vectors of length 1. */
export function cosine(left: Float32Array, right: Float32Array): number {
  let [a, b, c, d] = [0, 0, 0, 0]
  const end = left.length - (left.length % 4)
  for (let index = 0; index < end; index += 4) {
    a += (left[index] ?? 0) * (right[index] ?? 0)
    b += (left[index + 1] ?? 0) * (right[index + 1] ?? 0)
    c += (left[index + 2] ?? 0) * (right[index + 2] ?? 0)
    d += (left[index + 3] ?? 0) * (right[index + 3] ?? 0)
  }
  for (let index = end; index < left.length; index += 1) a += (left[index] ?? 0) * (right[index] ?? 0)
  return a + b + (c + d)
}

interface Best {
  offer(neighbour: Neighbour): void
  list(): readonly Neighbour[]
}

/** Keeps the nearest few; among equals the ones that came first. */
function createBest(limit: number): Best {
  const kept: Neighbour[] = []
  return {
    offer: (neighbour) => {
      const last = kept.at(-1)
      if (kept.length >= limit && (last === undefined || neighbour.similarity <= last.similarity)) return
      const place = kept.findIndex((other) => other.similarity < neighbour.similarity)
      kept.splice(place < 0 ? kept.length : place, 0, neighbour)
      if (kept.length > limit) kept.pop()
    },
    list: () => kept,
  }
}
