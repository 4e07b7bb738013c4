import type { Pause } from '../../core/async.ts'

/** The distinct terms of a text in ascending order, so that a term is found without reading the others. */
export interface TermCounts {
  readonly terms: Int32Array
  /** Number of occurrences of each term. */
  readonly counts: Int32Array
  /** Place of each term in the order of first occurrences. */
  readonly ranks: Int32Array
  /** Number of all occurrences. */
  readonly length: number
}

/** For each term of `TermCounts`, the parts of the text that contain it. */
export interface TermParts {
  /** `parts` from `offsets[position]` up to `offsets[position + 1]` belong to the term at `position`. */
  readonly offsets: Int32Array
  readonly parts: Int32Array
}

/** Returns the position of a term, or -1. */
export function positionOf(terms: Int32Array, term: number): number {
  let low = 0
  let high = terms.length - 1
  while (low <= high) {
    const middle = (low + high) >>> 1
    const found = terms[middle] ?? 0
    if (found === term) return middle
    if (found < term) low = middle + 1
    else high = middle - 1
  }
  return -1
}

export function countTerms(terms: readonly number[]): TermCounts {
  const collector = new TermCollector()
  collector.add(terms)
  return collector.count()
}

/** Returns the counts of several short texts together. */
export function sumCounts(texts: readonly TermCounts[]): TermCounts {
  const ranks = new Map<number, number>()
  const counts: number[] = []
  let length = 0
  for (const text of texts) {
    length += text.length
    for (const [position, term] of text.terms.entries()) {
      let rank = ranks.get(term)
      if (rank === undefined) ranks.set(term, (rank = counts.push(0) - 1))
      counts[rank] = (counts[rank] ?? 0) + (text.counts[position] ?? 0)
    }
  }
  const sorted = new SortedTerms(counts.length)
  sorted.append(ranks, counts)
  return { ...sorted.toArrays(), length }
}

/** Terms are 30-bit hashes. */
const TERM_BITS = 30
/** A term and its rank form one exact number. Further terms of a text are ignored. */
const MAX_DISTINCT_TERMS = 2 ** 23
/** A Map copies all its entries when it grows, and sorting takes long, so the terms of a long text are divided. */
const DIVISION_BITS = 6
const LONG_TEXT_LENGTH = 65_536

/** Counts the terms of a text that is read part by part. */
export class TermCollector {
  readonly #shift: number
  /** Ranks by term, for each range of terms. */
  readonly #ranks: readonly Map<number, number>[]
  #size = 0
  #length = 0
  /** By rank. */
  readonly #counts: number[] = []
  readonly #lastParts: number[] = []
  /** Ranks and parts in turn. */
  readonly #pairs: number[] = []

  /** @param textLength An estimate. */
  constructor(textLength = 0) {
    const bits = textLength < LONG_TEXT_LENGTH ? 0 : DIVISION_BITS
    this.#shift = TERM_BITS - bits
    this.#ranks = Array.from({ length: 2 ** bits }, () => new Map())
  }

  /** @param part Number of the part that contains the terms. Each part is added at once. @default none */
  add(terms: readonly number[], part?: number): void {
    this.#length += terms.length
    for (const term of terms) {
      const ranks = this.#ranks[term >>> this.#shift]
      let rank = ranks?.get(term)
      if (rank === undefined) {
        if (this.#size === MAX_DISTINCT_TERMS) continue
        rank = this.#size++
        ranks?.set(term, rank)
        this.#counts.push(0)
        this.#lastParts.push(-1)
      }
      this.#counts[rank] = (this.#counts[rank] ?? 0) + 1
      if (part === undefined || this.#lastParts[rank] === part) continue
      this.#lastParts[rank] = part
      this.#pairs.push(rank, part)
    }
  }

  /** Sorts all terms at once, so it is for short texts. */
  count(): TermCounts {
    const sorted = new SortedTerms(this.#size)
    for (const ranks of this.#ranks) sorted.append(ranks, this.#counts)
    return { ...sorted.toArrays(), length: this.#length }
  }

  async countWithPauses(pause: Pause): Promise<{ readonly counts: TermCounts; readonly termParts: TermParts }> {
    const sorted = new SortedTerms(this.#size)
    for (const ranks of this.#ranks) {
      sorted.append(ranks, this.#counts)
      await pause()
    }
    const counts = { ...sorted.toArrays(), length: this.#length }
    return { counts, termParts: await partsByTerm(counts.ranks, this.#pairs, pause) }
  }
}

class SortedTerms {
  readonly #terms: Int32Array
  readonly #counts: Int32Array
  readonly #ranks: Int32Array
  #size = 0

  constructor(size: number) {
    this.#terms = new Int32Array(size)
    this.#counts = new Int32Array(size)
    this.#ranks = new Int32Array(size)
  }

  /** The terms must be greater than those appended before. */
  append(ranks: ReadonlyMap<number, number>, counts: readonly number[]): void {
    const keys = new Float64Array(ranks.size)
    let size = 0
    for (const [term, rank] of ranks) keys[size++] = term * MAX_DISTINCT_TERMS + rank
    for (const key of keys.sort()) {
      const term = Math.floor(key / MAX_DISTINCT_TERMS)
      const rank = key - term * MAX_DISTINCT_TERMS
      this.#terms[this.#size] = term
      this.#counts[this.#size] = counts[rank] ?? 0
      this.#ranks[this.#size++] = rank
    }
  }

  toArrays(): Pick<TermCounts, 'terms' | 'counts' | 'ranks'> {
    return { terms: this.#terms, counts: this.#counts, ranks: this.#ranks }
  }
}

/** Elements per step. A step reads and writes memory in random order, so it takes some milliseconds. */
const STEP_LENGTH = 32_768

async function partsByTerm(ranks: Int32Array, pairs: readonly number[], pause: Pause): Promise<TermParts> {
  const sizes = new Int32Array(ranks.length)
  await inSteps(pairs.length, pause, (index) => {
    if (index % 2 === 1) return
    const rank = pairs[index] ?? 0
    sizes[rank] = (sizes[rank] ?? 0) + 1
  })
  const offsets = new Int32Array(ranks.length + 1)
  const next = new Int32Array(ranks.length)
  let offset = 0
  await inSteps(ranks.length, pause, (position) => {
    const rank = ranks[position] ?? 0
    next[rank] = offset
    offset += sizes[rank] ?? 0
    offsets[position + 1] = offset
  })
  const parts = new Int32Array(offset)
  await inSteps(pairs.length, pause, (index) => {
    if (index % 2 === 1) return
    const rank = pairs[index] ?? 0
    const place = next[rank] ?? 0
    parts[place] = pairs[index + 1] ?? 0
    next[rank] = place + 1
  })
  return { offsets, parts }
}

async function inSteps(length: number, pause: Pause, visit: (index: number) => void): Promise<void> {
  for (let start = 0; start < length; start += STEP_LENGTH) {
    if (start > 0) await pause()
    const end = Math.min(length, start + STEP_LENGTH)
    for (let index = start; index < end; index++) visit(index)
  }
}
