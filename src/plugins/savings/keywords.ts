import type { Pause } from '../../core/async.ts'

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
  const add = (term: string): void => {
    terms.push(hashOf(term))
  }
  let position = 0
  while (position < text.length) {
    const start = skipToWord(text, position)
    position = endOfCompound(text, start)
    if (position > start) addCompound(text.slice(start, position), add)
  }
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

function addCompound(compound: string, add: (term: string) => void): void {
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

function addPairs(text: string, add: (term: string) => void): void {
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

export interface TermCounts {
  readonly terms: Int32Array
  readonly counts: Int32Array
  readonly length: number
}

export interface Corpus {
  readonly texts: readonly TermCounts[]
  readonly averageLength: number
  readonly documentFrequency: Pick<ReadonlyMap<number, number>, 'get'>
}

/** The BM25 parameters k1 and b. */
const SATURATION = 1.2
const LENGTH_PENALTY = 0.75
const MAX_EXPANSION_TEXTS = 5
const MAX_EXPANSION_TERMS = 10
const MAX_CANDIDATE_TERMS = 1000
const EXPANSION_WEIGHT = 0.3

/** Number of terms that are processed without a pause. A pasted document can contain a million distinct terms. */
const SLICE_TERMS = 8192
/** Number of Maps among which many terms are divided, because a Map copies all its entries when it grows. */
const DIVISIONS = 64

export function countTerms(terms: readonly number[]): TermCounts {
  const counts = new Map<number, number>()
  for (const term of terms) counts.set(term, (counts.get(term) ?? 0) + 1)
  return toTermCounts(counts, terms.length)
}

export async function countTermsWithPauses(terms: readonly number[], pause: Pause): Promise<TermCounts> {
  if (terms.length <= SLICE_TERMS) return countTerms(terms)
  const divisions = Array.from({ length: DIVISIONS }, (): number[] => [])
  await forEachSlice(terms, pause, (slice) => {
    for (const term of slice) divisions[term % DIVISIONS]?.push(term)
  })
  const counted = await mapWithPauses(divisions, pause, countTerms)
  return {
    terms: concatenate(counted.map((division) => division.terms)),
    counts: concatenate(counted.map((division) => division.counts)),
    length: terms.length,
  }
}

function concatenate(arrays: readonly Int32Array[]): Int32Array {
  const joined = new Int32Array(arrays.reduce((sum, { length }) => sum + length, 0))
  let offset = 0
  for (const array of arrays) {
    joined.set(array, offset)
    offset += array.length
  }
  return joined
}

async function forEachSlice<Items extends { readonly length: number; slice(from: number, to: number): Items }>(
  items: Items,
  pause: Pause,
  work: (slice: Items, from: number) => void,
): Promise<void> {
  for (let from = 0; from < items.length; from += SLICE_TERMS) {
    work(items.slice(from, from + SLICE_TERMS), from)
    const pausing = pause()
    if (pausing !== undefined) await pausing
  }
}

export function toTermCounts(counts: ReadonlyMap<number, number>, length: number): TermCounts {
  return { terms: Int32Array.from(counts.keys()), counts: Int32Array.from(counts.values()), length }
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

export async function createCorpus(texts: readonly TermCounts[], pause: Pause): Promise<Corpus> {
  const divisions = Array.from({ length: DIVISIONS }, () => new Map<number, number>())
  for (const { terms } of texts) {
    await forEachSlice(terms, pause, (slice) => {
      for (const term of slice) {
        const division = divisions[term % DIVISIONS]
        division?.set(term, (division.get(term) ?? 0) + 1)
      }
    })
  }
  const averageLength = Math.max(1, totalLength(texts) / Math.max(1, texts.length))
  return { texts, averageLength, documentFrequency: { get: (term) => divisions[term % DIVISIONS]?.get(term) } }
}

/** The inverse document frequency of BM25. */
export function inverseFrequency(textCount: number, frequency: number): number {
  return Math.log(1 + (textCount - frequency + 0.5) / (frequency + 0.5))
}

export async function scoreTexts(
  corpus: Corpus,
  query: Query,
  pause: Pause,
  lengthPenalty: number = LENGTH_PENALTY,
): Promise<Float64Array> {
  const weights = new Map<number, number>()
  for (const [term, weight] of query) {
    const frequency = corpus.documentFrequency.get(term)
    if (frequency !== undefined) weights.set(term, weight * inverseFrequency(corpus.texts.length, frequency))
  }
  const scores = await mapWithPauses(corpus.texts, pause, (text) =>
    scoreText(text, weights, 1 - lengthPenalty + (lengthPenalty * text.length) / corpus.averageLength),
  )
  return Float64Array.from(scores)
}

function scoreText(text: TermCounts, weights: Query, lengthFactor: number): number {
  const damping = SATURATION * lengthFactor
  let score = 0
  for (let index = 0; index < text.terms.length; index++) {
    const weight = weights.get(text.terms[index] ?? 0)
    if (weight === undefined) continue
    const count = text.counts[index] ?? 0
    score += (weight * count * (SATURATION + 1)) / (count + damping)
  }
  return score
}

/** Pseudo-relevance feedback: adds the most significant terms of the best matching texts. */
export async function expandQuery(corpus: Corpus, query: Query, pause: Pause, lengthPenalty?: number): Promise<Query> {
  const scores = await scoreTexts(corpus, query, pause, lengthPenalty)
  const best = [...scores.keys()].filter((index) => (scores[index] ?? 0) > 0)
  best.sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))
  const candidateWeights = new Map<number, number>()
  for (const index of best.slice(0, MAX_EXPANSION_TEXTS)) {
    const text = corpus.texts[index]
    if (text === undefined) continue
    const termScore = (scores[index] ?? 0) / Math.max(1, text.length)
    let strongest: (readonly [term: number, weight: number])[] = []
    await forEachSlice(text.terms, pause, (terms, from) => {
      const candidates = [...strongest]
      for (const [position, term] of terms.entries()) {
        if (query.has(term)) continue
        const significance = inverseFrequency(corpus.texts.length, corpus.documentFrequency.get(term) ?? 0)
        candidates.push([term, termScore * (text.counts[from + position] ?? 0) * significance])
      }
      strongest = strongestOf(candidates, MAX_CANDIDATE_TERMS)
    })
    for (const [term, weight] of strongest) candidateWeights.set(term, (candidateWeights.get(term) ?? 0) + weight)
  }
  const strongest = strongestOf([...candidateWeights], MAX_EXPANSION_TERMS)
  const max = strongest[0]?.[1] ?? 1
  return new Map([...query, ...strongest.map(([term, weight]) => [term, (EXPANSION_WEIGHT * weight) / max] as const)])
}

function strongestOf(
  weights: (readonly [term: number, weight: number])[],
  limit: number,
): (readonly [term: number, weight: number])[] {
  return weights.sort((a, b) => b[1] - a[1]).slice(0, limit)
}

export function totalLength(texts: readonly TermCounts[]): number {
  return texts.reduce((sum, text) => sum + text.length, 0)
}
