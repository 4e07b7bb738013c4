import type { Pause } from '../core/async.ts'
import type { Snippet } from './excerpt.ts'

export type Query = ReadonlyMap<number, number>

/** Distinct terms, and how often each occurs. */
export interface TermCounts {
  readonly terms: Int32Array
  readonly counts: Int32Array
  readonly length: number
}

export interface Corpus {
  readonly texts: readonly TermCounts[]
  readonly averageLength: number
  readonly documentFrequency: ReadonlyMap<number, number>
}

/** The BM25 parameters k1 and b. */
const SATURATION = 1.2
const LENGTH_PENALTY = 0.75
const MAX_EXPANSION_TEXTS = 5
const MAX_EXPANSION_TERMS = 10
const EXPANSION_WEIGHT = 0.3

export function countTerms(terms: readonly number[]): TermCounts {
  const counts = new Map<number, number>()
  for (const term of terms) counts.set(term, (counts.get(term) ?? 0) + 1)
  return { terms: Int32Array.from(counts.keys()), counts: Int32Array.from(counts.values()), length: terms.length }
}

export async function createCorpus(texts: readonly TermCounts[], pause: Pause): Promise<Corpus> {
  const documentFrequency = new Map<number, number>()
  let total = 0
  for (const text of texts) {
    total += text.length
    for (const term of text.terms) documentFrequency.set(term, (documentFrequency.get(term) ?? 0) + 1)
    const pausing = pause()
    if (pausing !== undefined) await pausing
  }
  return { texts, averageLength: Math.max(1, total / Math.max(1, texts.length)), documentFrequency }
}

/** The inverse document frequency of BM25: near 0 for a term that all texts contain. */
export function inverseFrequency(textCount: number, frequency: number): number {
  return Math.log(1 + (textCount - frequency + 0.5) / (frequency + 0.5))
}

/** Returns the BM25 score of each text. A lower length penalty favors long texts. */
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
  const scores = new Float64Array(corpus.texts.length)
  for (const [index, text] of corpus.texts.entries()) {
    scores[index] = scoreText(text, weights, 1 - lengthPenalty + (lengthPenalty * text.length) / corpus.averageLength)
    const pausing = pause()
    if (pausing !== undefined) await pausing
  }
  return scores
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

/** Adds the most significant terms of the best matching texts to a query (pseudo-relevance feedback). */
export async function expandQuery(corpus: Corpus, query: Query, pause: Pause, lengthPenalty?: number): Promise<Query> {
  const scores = await scoreTexts(corpus, query, pause, lengthPenalty)
  const best = [...scores.keys()].filter((index) => (scores[index] ?? 0) > 0)
  best.sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))
  const candidateWeights = new Map<number, number>()
  for (const index of best.slice(0, MAX_EXPANSION_TEXTS)) {
    const text = corpus.texts[index]
    if (text === undefined) continue
    const share = (scores[index] ?? 0) / Math.max(1, text.length)
    for (const [position, term] of text.terms.entries()) {
      if (query.has(term)) continue
      const weight = inverseFrequency(corpus.texts.length, corpus.documentFrequency.get(term) ?? 0)
      candidateWeights.set(term, (candidateWeights.get(term) ?? 0) + share * (text.counts[position] ?? 0) * weight)
    }
  }
  const strongest = [...candidateWeights].sort((a, b) => b[1] - a[1]).slice(0, MAX_EXPANSION_TERMS)
  const max = strongest[0]?.[1] ?? 1
  return new Map([...query, ...strongest.map(([term, weight]) => [term, (EXPANSION_WEIGHT * weight) / max] as const)])
}

const MAX_TOPIC_DISTANCE = 10
const MAX_TOPIC_TERMS = 400

/**
 * Returns the BM25 score of each text together with its neighbors. In a meeting transcript, the terms of a question
 * occur in different turns of the same topic, and a relevant turn may contain none of them.
 */
export async function scoreTopics(texts: readonly TermCounts[], query: Query, pause: Pause): Promise<Float64Array> {
  const reduced: TermCounts[] = []
  for (const text of texts) {
    reduced.push(keepQueryTerms(text, query))
    const pausing = pause()
    if (pausing !== undefined) await pausing
  }
  const topics: TermCounts[] = []
  for (const index of reduced.keys()) {
    topics.push(mergeCounts(topicAround(reduced, index)))
    const pausing = pause()
    if (pausing !== undefined) await pausing
  }
  return scoreTexts(await createCorpus(topics, pause), query, pause)
}

/**
 * Returns a text and its neighbors, up to the maximum number of terms. Excludes long neighbors, which are documents
 * with their own topic.
 */
function topicAround(texts: readonly TermCounts[], index: number): readonly TermCounts[] {
  let length = texts[index]?.length ?? 0
  let distance = 0
  for (; distance < MAX_TOPIC_DISTANCE && length <= MAX_TOPIC_TERMS; distance++) {
    length += (texts[index - distance - 1]?.length ?? 0) + (texts[index + distance + 1]?.length ?? 0)
  }
  const reach = length <= MAX_TOPIC_TERMS ? distance : Math.max(0, distance - 1)
  return texts.slice(Math.max(0, index - reach), index + reach + 1)
}

/** Keeps only the counts of query terms. The length stays unchanged. */
function keepQueryTerms({ terms, counts, length }: TermCounts, query: Query): TermCounts {
  const indexes = [...terms.keys()].filter((index) => query.has(terms[index] ?? 0))
  return {
    terms: Int32Array.from(indexes, (index) => terms[index] ?? 0),
    counts: Int32Array.from(indexes, (index) => counts[index] ?? 0),
    length,
  }
}

function mergeCounts(texts: readonly TermCounts[]): TermCounts {
  const counts = new Map<number, number>()
  for (const text of texts) {
    for (const [index, term] of text.terms.entries())
      counts.set(term, (counts.get(term) ?? 0) + (text.counts[index] ?? 0))
  }
  const length = texts.reduce((sum, text) => sum + text.length, 0)
  return { terms: Int32Array.from(counts.keys()), counts: Int32Array.from(counts.values()), length }
}

/** Returns a score from 0 to 1 for each snippet that contains query terms. Rarer terms score higher. */
export async function scoreSnippets(
  analyses: readonly { readonly snippets: readonly Snippet[] }[],
  query: Query,
  pause: Pause,
): Promise<ReadonlyMap<Snippet, number>> {
  const matches = new Map<Snippet, readonly number[]>()
  const frequency = new Map<number, number>()
  let count = 0
  for (const { snippets } of analyses) {
    count += snippets.length
    for (const snippet of snippets) {
      const pausing = pause()
      if (pausing !== undefined) await pausing
      const terms = queryTermsIn(snippet, query)
      if (terms.length === 0) continue
      matches.set(snippet, terms)
      for (const term of terms) frequency.set(term, (frequency.get(term) ?? 0) + 1)
    }
  }
  const scores = new Map<Snippet, number>()
  let max = 1e-9
  for (const [snippet, terms] of matches) {
    let score = 0
    for (const term of terms) score += (query.get(term) ?? 0) * inverseFrequency(count, frequency.get(term) ?? 0)
    scores.set(snippet, score)
    max = Math.max(max, score)
  }
  for (const [snippet, score] of scores) scores.set(snippet, score / max)
  return scores
}

const NO_TERMS: readonly number[] = []

/** Most snippets contain no query terms, so they share one empty array. */
function queryTermsIn(snippet: Snippet, query: Query): readonly number[] {
  let terms: number[] | undefined
  for (const term of snippet.terms) {
    if (query.has(term)) (terms ??= []).push(term)
  }
  return terms ?? NO_TERMS
}
