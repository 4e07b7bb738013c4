import type { Pause } from '../core/pause.ts'
import { corpusOf, scoresOf, type Query, type TermCounts } from './keywords.ts'

/** A topic goes on over so many texts before and after one. */
const REACH = 10
/** Terms of a topic at the most. */
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

/** A text and the texts on both sides of it, while they are short: documents side by side are no topic. */
function around(texts: readonly TermCounts[], at: number): readonly TermCounts[] {
  let length = texts[at]?.length ?? 0
  let away = 0
  for (; away < REACH && length <= MAX_TERMS; away++) {
    length += (texts[at - away - 1]?.length ?? 0) + (texts[at + away + 1]?.length ?? 0)
  }
  const reach = length <= MAX_TERMS ? away : Math.max(0, away - 1)
  return texts.slice(Math.max(0, at - reach), at + reach + 1)
}

/** The terms of a text that the query holds; its length stays. */
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
