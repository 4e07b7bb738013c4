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
/** The words of a sketch that are looked at where the first ones are near enough, and then where these are. */
const STAGES = [8, SKETCH_WORDS] as const
/** What a whole sketch and an exact comparison cost, in first looks. */
const STAGE_COST = 6
const EXACT_COST = 60
/** How much is done between two pauses: about 3 ms. */
const SLICE = 200_000

/**
 * The vectors of one scope. A search looks at the sketches, which lie side by side, and computes the cosine of the few
 * vectors whose sketch is near enough.
 */
export class Partition {
  /** Places of removed vectors are empty until no search is under way: a search never misses one that was moved. */
  private entries: (Stored | undefined)[] = []
  private first: Uint32Array = new Uint32Array(4 * FIRST_WORDS)
  private rest: Uint32Array = new Uint32Array(4 * (SKETCH_WORDS - FIRST_WORDS))
  private empty = 0
  private searches = 0

  get size(): number {
    return this.entries.length - this.empty
  }

  add(entry: Stored, sketch: Uint32Array): void {
    const slot = this.entries.length
    if ((slot + 1) * FIRST_WORDS > this.first.length) this.grow()
    this.entries.push(entry)
    entry.slot = slot
    this.first.set(sketch.subarray(0, FIRST_WORDS), slot * FIRST_WORDS)
    this.rest.set(sketch.subarray(FIRST_WORDS), slot * (SKETCH_WORDS - FIRST_WORDS))
  }

  remove(entry: Stored): void {
    this.entries[entry.slot] = undefined
    this.empty += 1
    this.tidy()
  }

  async search(search: Search, pause: () => Promise<void>): Promise<readonly Neighbour[]> {
    this.searches += 1
    try {
      return await this.scan(search, pause)
    } finally {
      this.searches -= 1
      this.tidy()
    }
  }

  private async scan(search: Search, pause: () => Promise<void>): Promise<readonly Neighbour[]> {
    const best = createBest(search.limit)
    const mostFirst = mostDifferentBits(search.least, FIRST_WORDS)
    const most = STAGES.map((words) => mostDifferentBits(search.least, words))
    const [one = 0, two = 0] = search.sketch
    let done = 0
    for (let slot = 0; slot < this.entries.length; slot += 1) {
      const place = slot * FIRST_WORDS
      const different =
        countOnes((this.first[place] ?? 0) ^ one) + countOnes((this.first[place + 1] ?? 0) ^ two)
      done += 1
      if (different <= mostFirst) {
        const near = this.isNear(slot, search.sketch, different, most)
        done += near ? EXACT_COST : STAGE_COST
        if (near) this.compare(slot, search, best)
      }
      if (done >= SLICE) {
        done = 0
        await pause()
      }
    }
    return best.list()
  }

  private isNear(slot: number, sketch: Uint32Array, inFirst: number, most: readonly number[]): boolean {
    const place = slot * (SKETCH_WORDS - FIRST_WORDS) - FIRST_WORDS
    let different = inFirst
    let word = FIRST_WORDS
    for (let stage = 0; stage < STAGES.length; stage += 1) {
      const end = STAGES[stage] ?? 0
      for (; word < end; word += 1) different += countOnes((this.rest[place + word] ?? 0) ^ (sketch[word] ?? 0))
      if (different > (most[stage] ?? 0)) return false
    }
    return true
  }

  private compare(slot: number, search: Search, best: Best): void {
    const entry = this.entries[slot]
    if (entry === undefined || entry.expiresAt <= search.now) return
    const similarity = cosine(entry.vector, search.vector)
    if (similarity >= search.least) best.offer({ id: entry.id, similarity })
  }

  private grow(): void {
    const capacity = this.entries.length * 2
    this.first = enlarged(this.first, capacity * FIRST_WORDS)
    this.rest = enlarged(this.rest, capacity * (SKETCH_WORDS - FIRST_WORDS))
  }

  /** Closes the gaps once they are half of the places. */
  private tidy(): void {
    if (this.searches > 0 || this.empty * 2 <= this.entries.length) return
    const kept = this.entries.filter((entry) => entry !== undefined)
    const width = SKETCH_WORDS - FIRST_WORDS
    kept.forEach((entry, slot) => {
      this.first.copyWithin(slot * FIRST_WORDS, entry.slot * FIRST_WORDS, (entry.slot + 1) * FIRST_WORDS)
      this.rest.copyWithin(slot * width, entry.slot * width, (entry.slot + 1) * width)
      entry.slot = slot
    })
    this.entries = kept
    this.empty = 0
  }
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
