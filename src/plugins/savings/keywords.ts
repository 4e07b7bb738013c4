import { isPromise, type MaybePromise, type Pause } from '../../core/async.ts'
import { positionOf, type TermCounts } from './term-counts.ts'

const STOP_WORDS: ReadonlySet<string> = new Set(
  (
    'a an the and or but nor so yet if then than that this these those it its i me my mine we us our ours you your yours he him his ' +
    'she her hers they them their theirs who whom whose which what when where why how is are was were be been being am do does did ' +
    'done doing have has had having will would shall should can could may might must not no yes of to in on at by for with from into ' +
    'onto over under about as up down out off there here all any some each every both few more most other such only own same too very ' +
    'just also again once ever never please tell let got get go going like want know think thing lot okay ok yeah oh um uh hmm well ' +
    'really one two need make say said mean much many because while during before after between through'
  ).split(' '),
)

const NONE = 0
const LETTER = 1
const DIGIT = 2
const JOINER = 3

const ASCII_CLASSES: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) => {
  const character = String.fromCharCode(code)
  if (/[A-Za-z_$]/.test(character)) return LETTER
  if (/\d/.test(character)) return DIGIT
  return /[-./:@'+]/.test(character) ? JOINER : NONE
})

/** Longer compounds, such as encoded data or URLs, are ignored. CJK text is exempt. */
const MAX_WORD_LENGTH = 64

/** Terms are 30-bit hashes, which take less memory than strings. A collision affects only the ranking. */
export function termsOf(text: string): number[] {
  const terms: number[] = []
  let position = 0
  while (position < text.length) {
    const start = skipToWord(text, position)
    position = endOfCompound(text, start)
    if (position > start) for (const term of termsOfCompound(text.slice(start, position))) terms.push(term)
  }
  return terms
}

/** Engines copy a slice of up to 12 characters. A longer one would keep the whole text in memory. */
const MAX_KNOWN_LENGTH = 12
const MAX_KNOWN_COMPOUNDS = 16_384
/** The same words recur in all texts, and dividing and stemming one takes ten times as long as finding it here. */
const knownCompounds = new Map<string, readonly number[]>()

function termsOfCompound(compound: string): readonly number[] {
  const known = knownCompounds.get(compound)
  if (known !== undefined) return known
  const terms: number[] = []
  addCompound(compound, (term) => terms.push(hashOf(term)))
  if (compound.length > MAX_KNOWN_LENGTH) return terms
  if (knownCompounds.size === MAX_KNOWN_COMPOUNDS) knownCompounds.clear()
  knownCompounds.set(compound, terms)
  return terms
}

function hashOf(term: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < term.length; index++) hash = Math.imul(hash ^ term.charCodeAt(index), 0x01000193)
  return (hash ^ (hash >>> 17)) & 0x3fffffff
}

function skipToWord(text: string, from: number): number {
  let position = from
  while (position < text.length && !isWordCharacter(text.charCodeAt(position))) position++
  return position
}

function endOfCompound(text: string, start: number): number {
  let position = start
  while (position < text.length) {
    const code = text.charCodeAt(position)
    const isJoiner = code < 128 && ASCII_CLASSES[code] === JOINER && isWordCharacter(text.charCodeAt(position + 1))
    if (!isJoiner && !isWordCharacter(code)) break
    position++
  }
  return position
}

function isWordCharacter(code: number): boolean {
  if (code < 128) return ASCII_CLASSES[code] === LETTER || ASCII_CLASSES[code] === DIGIT
  // Excludes most punctuation, arrows, box drawings and full-width digits.
  return code >= 0xc0 && (code < 0x2000 || code > 0x303f) && (code < 0xff00 || code > 0xff20) && code !== 0xfffd
}

function addCompound(compound: string, add: (term: string) => unknown): void {
  if (isCjk(compound.charCodeAt(0))) return addPairs(compound, add)
  const lowerCase = compound.toLowerCase()
  if (lowerCase.length > MAX_WORD_LENGTH) return
  const parts = partsOf(compound)
  if (parts.length > 1) add(lowerCase)
  for (const part of parts) {
    const term = part.toLowerCase()
    if (!STOP_WORDS.has(term)) add(stemOf(term))
  }
}

function partsOf(compound: string): readonly string[] {
  if (/^[a-z]+$|^[A-Z][a-z]*$|^\d+$/.test(compound)) return [compound]
  return compound
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .split(/[-./:@'+_$ ]+/)
    .filter((part) => part.length > 1 || /[\d\u00c0-\uffff]/.test(part))
}

function isCjk(code: number): boolean {
  return code >= 0x3040 && code < 0xd800
}

function addPairs(text: string, add: (term: string) => unknown): void {
  for (let index = 0; index < text.length; index++) add(text.slice(index, index + 2))
}

export function stemOf(word: string): string {
  if (word.length < 4 || /\d/.test(word)) return word
  let stem = word
  if (/[^aeiou]ies$/.test(stem)) stem = `${stem.slice(0, -3)}y`
  else if (/(?:[sxz]|ch|sh)es$/.test(stem)) stem = stem.slice(0, -2)
  else if (/[^suai]s$/.test(stem)) stem = stem.slice(0, -1)
  const bare = stem.replace(/(?:ing|ed|ly)$/, '')
  if (bare !== stem && bare.length > 2 && /[aeiouy]/.test(bare)) stem = bare.replace(/([bdfgmnprt])\1$/, '$1')
  return stem.length > 3 ? stem.replace(/e$/, '') : stem
}

/** Weights by term. */
export type Query = ReadonlyMap<number, number>

export interface Corpus {
  readonly texts: readonly TermCounts[]
  readonly averageLength: number
}

/** Number of Maps among which many terms are divided, because a Map copies all its entries when it grows. */
const DIVISIONS = 64
const FILTER_BITS = 14

/** The BM25 parameters k1 and b. */
const SATURATION = 1.2
const LENGTH_PENALTY = 0.75
const MAX_EXPANSION_TEXTS = 5
const MAX_EXPANSION_TERMS = 10
const MAX_CANDIDATE_TERMS = 1000
const EXPANSION_WEIGHT = 0.3

/** Number of terms that are processed without a pause. A pasted document can contain a million distinct terms. */
const SLICE_TERMS = 8192

/** Returns a promise only for many terms, because most texts are short. */
function forEachSlice(
  terms: Int32Array,
  pause: Pause,
  work: (slice: Int32Array, from: number) => void,
): MaybePromise<void> {
  if (terms.length > SLICE_TERMS) return forEachSliceOfMany(terms, pause, work)
  work(terms, 0)
  return pause()
}

async function forEachSliceOfMany(
  terms: Int32Array,
  pause: Pause,
  work: (slice: Int32Array, from: number) => void,
): Promise<void> {
  for (let from = 0; from < terms.length; from += SLICE_TERMS) {
    work(terms.subarray(from, from + SLICE_TERMS), from)
    const pausing = pause()
    if (pausing !== undefined) await pausing
  }
}

export async function mapWithPauses<T, Result>(
  items: readonly T[],
  pause: Pause,
  map: (item: T, index: number) => Result,
): Promise<Result[]> {
  const results: Result[] = []
  for (const [index, item] of items.entries()) {
    results.push(map(item, index))
    const pausing = pause()
    if (pausing !== undefined) await pausing
  }
  return results
}

export function createCorpus(texts: readonly TermCounts[]): Corpus {
  return { texts, averageLength: Math.max(1, totalLength(texts) / Math.max(1, texts.length)) }
}

/** Counts the texts that contain each of the terms. */
export async function countDocuments(
  texts: readonly TermCounts[],
  terms: readonly Int32Array[],
  pause: Pause,
): Promise<(term: number) => number> {
  const divisions = Array.from({ length: DIVISIONS }, () => new Map<number, number>())
  const frequencies: number[] = []
  for (const some of terms) {
    await forEachSlice(some, pause, (slice) => {
      for (const term of slice) {
        const division = divisions[term % DIVISIONS]
        if (division?.has(term) === false) division.set(term, frequencies.push(0) - 1)
      }
    })
  }
  const mayBeCounted = createFilter(terms)
  const count = (slice: Int32Array): void => {
    for (let position = 0; position < slice.length; position++) {
      const term = slice[position] ?? 0
      if (!mayBeCounted(term)) continue
      const index = divisions[term % DIVISIONS]?.get(term)
      if (index !== undefined) frequencies[index] = (frequencies[index] ?? 0) + 1
    }
  }
  for (const text of texts) {
    const counting = forEachSlice(text.terms, pause, count)
    if (isPromise(counting)) await counting
  }
  return (term) => frequencies[divisions[term % DIVISIONS]?.get(term) ?? -1] ?? 0
}

/** The inverse document frequency of BM25. */
export function inverseFrequency(textCount: number, frequency: number): number {
  return Math.log(1 + (textCount - frequency + 0.5) / (frequency + 0.5))
}

/** Where texts contain the terms of a query. */
export interface QueryMatches {
  readonly query: Query
  /** Weights of the terms, by index. */
  readonly weights: readonly number[]
  /** For each text, the index of each found term and its position among the terms of the text, in turn. */
  readonly found: readonly (readonly number[])[]
}

/** @param known Matches of other terms, which are included. @default none */
export async function findMatches(
  texts: readonly TermCounts[],
  query: Query,
  pause: Pause,
  known: QueryMatches = { query: new Map(), weights: [], found: [] },
): Promise<QueryMatches> {
  const find = createFinder(query, known.weights.length)
  const found = await mapWithPauses(texts, pause, ({ terms }, index) => find(terms, known.found[index] ?? []))
  return { query: new Map([...known.query, ...query]), weights: [...known.weights, ...query.values()], found }
}

function createFinder(
  query: Query,
  firstIndex: number,
): (terms: Int32Array, known: readonly number[]) => readonly number[] {
  const queried = [...query.keys()]
  const indexes = new Map(queried.map((term, index) => [term, firstIndex + index]))
  const mayBeQueried = createFilter([Int32Array.from(queried)])
  return (terms, known) => {
    const found = [...known]
    // Binary searches take longer than reading a short text.
    if (queried.length * Math.log2(terms.length + 1) < terms.length) {
      for (const [index, term] of queried.entries()) {
        const position = positionOf(terms, term)
        if (position !== -1) found.push(firstIndex + index, position)
      }
      return found
    }
    for (let position = 0; position < terms.length; position++) {
      const term = terms[position] ?? 0
      const index = mayBeQueried(term) ? indexes.get(term) : undefined
      if (index !== undefined) found.push(index, position)
    }
    return found
  }
}

/** Returns a function that is faster than a look-up in a Map, and true for all of the terms and few others. */
function createFilter(lists: readonly Int32Array[]): (term: number) => boolean {
  const slots = new Uint8Array(2 ** FILTER_BITS)
  const mask = slots.length - 1
  for (const terms of lists) for (const term of terms) slots[term & mask] = 1
  return (term) => slots[term & mask] === 1
}

/** The BM25 scores of the texts. */
export function scoreTexts({ texts, averageLength }: Corpus, { weights, found }: QueryMatches): Float64Array {
  const frequencies = new Int32Array(weights.length)
  for (const matches of found) for (let at = 0; at < matches.length; at += 2) addAt(frequencies, matches[at] ?? 0, 1)
  const rareWeights = weights.map((weight, index) => weight * inverseFrequency(texts.length, frequencies[index] ?? 0))
  const scores = new Float64Array(texts.length)
  for (const [index, { counts, length }] of texts.entries()) {
    const damping = SATURATION * (1 - LENGTH_PENALTY + (LENGTH_PENALTY * length) / averageLength)
    const matches = found[index] ?? []
    let score = 0
    for (let at = 0; at < matches.length; at += 2) {
      const count = counts[matches[at + 1] ?? 0] ?? 0
      score += ((rareWeights[matches[at] ?? 0] ?? 0) * count * (SATURATION + 1)) / (count + damping)
    }
    scores[index] = score
  }
  return scores
}

export function addAt(sums: Int32Array | Float64Array, index: number, added: number): void {
  sums[index] = (sums[index] ?? 0) + added
}

/** Pseudo-relevance feedback: adds matches of the most significant terms of the best matching texts. */
export async function expandQuery(corpus: Corpus, matches: QueryMatches, pause: Pause): Promise<QueryMatches> {
  const { texts } = corpus
  const { query } = matches
  const scores = scoreTexts(corpus, matches)
  const matching = [...scores.keys()].filter((index) => (scores[index] ?? 0) > 0)
  matching.sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))
  const best = matching.slice(0, MAX_EXPANSION_TEXTS).flatMap((index) => {
    const text = texts[index]
    return text === undefined ? [] : [{ text, termScore: (scores[index] ?? 0) / Math.max(1, text.length) }]
  })
  const candidates = best.map(({ text }) => text.terms)
  const frequencyOf = await countDocuments(texts, candidates, pause)
  const candidateWeights = new Map<number, number>()
  for (const { text, termScore } of best) {
    let strongest: readonly Candidate[] = []
    await forEachSlice(text.terms, pause, (terms, from) => {
      const candidates = [...strongest]
      for (const [position, term] of terms.entries()) {
        if (query.has(term)) continue
        const significance = inverseFrequency(texts.length, frequencyOf(term))
        const weight = termScore * (text.counts[from + position] ?? 0) * significance
        candidates.push({ term, weight, rank: text.ranks[from + position] ?? 0 })
      }
      strongest = strongestOf(candidates, MAX_CANDIDATE_TERMS)
    })
    for (const { term, weight } of strongest) candidateWeights.set(term, (candidateWeights.get(term) ?? 0) + weight)
  }
  const all = [...candidateWeights].map(([term, weight], rank): Candidate => ({ term, weight, rank }))
  const strongest = strongestOf(all, MAX_EXPANSION_TERMS)
  const max = strongest[0]?.weight ?? 1
  const added = new Map(strongest.map(({ term, weight }) => [term, (EXPANSION_WEIGHT * weight) / max] as const))
  return findMatches(texts, added, pause, matches)
}

/** Of two terms with the same weight, the one with the lower rank is preferred. */
interface Candidate {
  readonly term: number
  readonly weight: number
  readonly rank: number
}

function strongestOf(candidates: Candidate[], limit: number): readonly Candidate[] {
  return candidates.sort((a, b) => b.weight - a.weight || a.rank - b.rank).slice(0, limit)
}

export function totalLength(texts: readonly TermCounts[]): number {
  return texts.reduce((sum, text) => sum + text.length, 0)
}
