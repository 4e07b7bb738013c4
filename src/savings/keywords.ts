import type { Pause } from '../core/async.ts'
import type { Snippet } from './excerpt.ts'

/** Weights of the terms of a query. */
export type Query = ReadonlyMap<number, number>

/** The terms of one text: each once, with its number of occurrences. */
export interface TermCounts {
  readonly terms: Int32Array
  readonly counts: Int32Array
  /** All terms, repeats included. */
  readonly length: number
}

/** The texts that are searched. */
export interface Corpus {
  readonly texts: readonly TermCounts[]
  readonly averageLength: number
  /** The number of texts that contain a term. */
  readonly spread: ReadonlyMap<number, number>
}

const SATURATION = 1.2
const LENGTH_PENALTY = 0.75
const EXPANDING_HITS = 5
const EXPANDING_TERMS = 10
const EXPANSION_WEIGHT = 0.3

export function countTerms(terms: readonly number[]): TermCounts {
  const counts = new Map<number, number>()
  for (const term of terms) counts.set(term, (counts.get(term) ?? 0) + 1)
  return { terms: Int32Array.from(counts.keys()), counts: Int32Array.from(counts.values()), length: terms.length }
}

export async function corpusOf(texts: readonly TermCounts[], pause: Pause): Promise<Corpus> {
  const spread = new Map<number, number>()
  let total = 0
  for (const text of texts) {
    total += text.length
    for (const term of text.terms) spread.set(term, (spread.get(term) ?? 0) + 1)
    const due = pause()
    if (due !== undefined) await due
  }
  return { texts, averageLength: Math.max(1, total / Math.max(1, texts.length)), spread }
}

/** Returns the inverse document frequency of a term: near 0 for a term that every text contains. */
export function rarityAmong(texts: number, spread: number): number {
  return Math.log(1 + (texts - spread + 0.5) / (spread + 0.5))
}

/** Returns the BM25 score of each text. With a length penalty below 1, long texts score higher. */
export async function scoresOf(
  corpus: Corpus,
  query: Query,
  pause: Pause,
  lengthPenalty: number = LENGTH_PENALTY,
): Promise<Float64Array> {
  const worth = new Map<number, number>()
  for (const [term, weight] of query) {
    const spread = corpus.spread.get(term)
    if (spread !== undefined) worth.set(term, weight * rarityAmong(corpus.texts.length, spread))
  }
  const scores = new Float64Array(corpus.texts.length)
  for (const [index, text] of corpus.texts.entries()) {
    scores[index] = scoreOf(text, worth, 1 - lengthPenalty + (lengthPenalty * text.length) / corpus.averageLength)
    const due = pause()
    if (due !== undefined) await due
  }
  return scores
}

function scoreOf(text: TermCounts, worth: Query, length: number): number {
  const damping = SATURATION * length
  let score = 0
  for (let at = 0; at < text.terms.length; at++) {
    const value = worth.get(text.terms[at] ?? 0)
    if (value === undefined) continue
    const count = text.counts[at] ?? 0
    score += (value * count * (SATURATION + 1)) / (count + damping)
  }
  return score
}

/** Expands the query, at a lower weight, by the terms that its best hits share. */
export async function expandQuery(corpus: Corpus, query: Query, pause: Pause, lengthPenalty?: number): Promise<Query> {
  const scores = await scoresOf(corpus, query, pause, lengthPenalty)
  const best = [...scores.keys()].filter((index) => (scores[index] ?? 0) > 0)
  best.sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))
  const found = new Map<number, number>()
  for (const index of best.slice(0, EXPANDING_HITS)) {
    const text = corpus.texts[index]
    if (text === undefined) continue
    const share = (scores[index] ?? 0) / Math.max(1, text.length)
    for (const [at, term] of text.terms.entries()) {
      if (query.has(term)) continue
      const rarity = rarityAmong(corpus.texts.length, corpus.spread.get(term) ?? 0)
      found.set(term, (found.get(term) ?? 0) + share * (text.counts[at] ?? 0) * rarity)
    }
  }
  const strongest = [...found].sort((a, b) => b[1] - a[1]).slice(0, EXPANDING_TERMS)
  const greatest = strongest[0]?.[1] ?? 1
  return new Map([
    ...query,
    ...strongest.map(([term, worth]) => [term, (EXPANSION_WEIGHT * worth) / greatest] as const),
  ])
}

/** Number of texts before and after a text that may belong to its topic. */
const REACH = 10
/** Maximum terms of a topic. */
const MAX_TERMS = 400

/**
 * BM25 of each text together with the texts around it. Where several people talk, the terms of a question are spread
 * over the turns of its topic: a turn in the middle of them may hold none and still be needed.
 */
export async function scoreTopics(texts: readonly TermCounts[], query: Query, pause: Pause): Promise<Float64Array> {
  const asked: TermCounts[] = []
  for (const text of texts) {
    asked.push(onlyAsked(text, query))
    const due = pause()
    if (due !== undefined) await due
  }
  const stretches: TermCounts[] = []
  for (const at of asked.keys()) {
    stretches.push(joined(around(asked, at)))
    const due = pause()
    if (due !== undefined) await due
  }
  return scoresOf(await corpusOf(stretches, pause), query, pause)
}

/** Returns a text and its neighbors, while they are short. Adjacent documents are not a topic. */
function around(texts: readonly TermCounts[], at: number): readonly TermCounts[] {
  let length = texts[at]?.length ?? 0
  let away = 0
  for (; away < REACH && length <= MAX_TERMS; away++) {
    length += (texts[at - away - 1]?.length ?? 0) + (texts[at + away + 1]?.length ?? 0)
  }
  const reach = length <= MAX_TERMS ? away : Math.max(0, away - 1)
  return texts.slice(Math.max(0, at - reach), at + reach + 1)
}

/** Keeps the terms of a text that are in the query, and the length of the text. */
function onlyAsked({ terms, counts, length }: TermCounts, query: Query): TermCounts {
  const found = [...terms.keys()].filter((at) => query.has(terms[at] ?? 0))
  return {
    terms: Int32Array.from(found, (at) => terms[at] ?? 0),
    counts: Int32Array.from(found, (at) => counts[at] ?? 0),
    length,
  }
}

function joined(texts: readonly TermCounts[]): TermCounts {
  const counts = new Map<number, number>()
  let length = 0
  for (const text of texts) {
    length += text.length
    for (const [at, term] of text.terms.entries()) counts.set(term, (counts.get(term) ?? 0) + (text.counts[at] ?? 0))
  }
  return { terms: Int32Array.from(counts.keys()), counts: Int32Array.from(counts.values()), length }
}

/** Scores each snippet from 0 to 1 by the query terms that it contains. Rare terms count most. */
export async function scoreSnippets(
  analyses: readonly { readonly snippets: readonly Snippet[] }[],
  query: Query,
  pause: Pause,
): Promise<ReadonlyMap<Snippet, number>> {
  const held = new Map<Snippet, readonly number[]>()
  const spread = new Map<number, number>()
  let count = 0
  for (const { snippets } of analyses) {
    count += snippets.length
    for (const snippet of snippets) {
      const due = pause()
      if (due !== undefined) await due
      const terms = termsIn(snippet, query)
      if (terms.length === 0) continue
      held.set(snippet, terms)
      for (const term of terms) spread.set(term, (spread.get(term) ?? 0) + 1)
    }
  }
  const scores = new Map<Snippet, number>()
  let greatest = 1e-9
  for (const [snippet, terms] of held) {
    const score = terms.reduce(
      (sum, term) => sum + (query.get(term) ?? 0) * rarityAmong(count, spread.get(term) ?? 0),
      0,
    )
    scores.set(snippet, score)
    greatest = Math.max(greatest, score)
  }
  for (const [snippet, score] of scores) scores.set(snippet, score / greatest)
  return scores
}

/** Returns the query terms in a snippet. Most snippets contain none, so no array is allocated for them. */
function termsIn(snippet: Snippet, query: Query): readonly number[] {
  let found: number[] | undefined
  for (const term of snippet.terms) {
    if (query.has(term)) (found ??= []).push(term)
  }
  return found ?? []
}
