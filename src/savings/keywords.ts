import type { Pause } from '../core/async.ts'

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
/** Maximum number of terms per text that are candidates for the expansion. */
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

/** Like `countTerms`, for any number of terms. Divides many terms by their value, and pauses between the divisions. */
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

function toTermCounts(counts: ReadonlyMap<number, number>, length: number): TermCounts {
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

const MAX_TOPIC_DISTANCE = 10
const MAX_TOPIC_TERMS = 400

/** In a meeting transcript, the terms of a question occur in different turns of the same topic. */
export async function scoreTopics(texts: readonly TermCounts[], query: Query, pause: Pause): Promise<Float64Array> {
  const reduced = await mapWithPauses(texts, pause, (text) => keepQueryTerms(text, query))
  const topics = await mapWithPauses(reduced, pause, (_, index) => mergeCounts(topicAround(reduced, index)))
  return scoreTexts(await createCorpus(topics, pause), query, pause)
}

/** Stops before a long neighbor, which is a document with its own topic. */
function topicAround(texts: readonly TermCounts[], index: number): readonly TermCounts[] {
  let length = texts[index]?.length ?? 0
  let distance = 0
  for (; distance < MAX_TOPIC_DISTANCE && length <= MAX_TOPIC_TERMS; distance++) {
    length += (texts[index - distance - 1]?.length ?? 0) + (texts[index + distance + 1]?.length ?? 0)
  }
  const reach = length <= MAX_TOPIC_TERMS ? distance : Math.max(0, distance - 1)
  return texts.slice(Math.max(0, index - reach), index + reach + 1)
}

function keepQueryTerms({ terms, counts, length }: TermCounts, query: Query): TermCounts {
  const isInQuery = (_: number, index: number): boolean => query.has(terms[index] ?? 0)
  return { terms: terms.filter(isInQuery), counts: counts.filter(isInQuery), length }
}

function mergeCounts(texts: readonly TermCounts[]): TermCounts {
  const counts = new Map<number, number>()
  for (const text of texts) {
    for (const [index, term] of text.terms.entries())
      counts.set(term, (counts.get(term) ?? 0) + (text.counts[index] ?? 0))
  }
  return toTermCounts(counts, totalLength(texts))
}

function totalLength(texts: readonly TermCounts[]): number {
  return texts.reduce((sum, text) => sum + text.length, 0)
}
