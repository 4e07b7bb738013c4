import { rarityAmong, type Query } from './keywords.ts'
import type { Pause } from '../core/pause.ts'
import type { Passage } from './excerpt.ts'
import type { Reading } from './reading.ts'

/** How well each passage fits the query, 0 to 1: which of the query's terms it holds, the rare ones counting most. */
export async function scorePassages(
  readings: readonly Reading[],
  query: Query,
  pause: Pause,
): Promise<ReadonlyMap<Passage, number>> {
  const held = new Map<Passage, readonly number[]>()
  const spread = new Map<number, number>()
  let count = 0
  for (const { passages } of readings) {
    count += passages.length
    for (const passage of passages) {
      const due = pause()
      if (due !== undefined) await due
      const terms = termsIn(passage, query)
      if (terms.length === 0) continue
      held.set(passage, terms)
      for (const term of terms) spread.set(term, (spread.get(term) ?? 0) + 1)
    }
  }
  const scores = new Map<Passage, number>()
  let greatest = 1e-9
  for (const [passage, terms] of held) {
    const score = terms.reduce(
      (sum, term) => sum + (query.get(term) ?? 0) * rarityAmong(count, spread.get(term) ?? 0),
      0,
    )
    scores.set(passage, score)
    greatest = Math.max(greatest, score)
  }
  for (const [passage, score] of scores) scores.set(passage, score / greatest)
  return scores
}

/** The terms of the query that the passage holds. Most passages hold none, so nothing is allocated for them. */
function termsIn(passage: Passage, query: Query): readonly number[] {
  let found: number[] | undefined
  for (const term of passage.terms) {
    if (query.has(term)) (found ??= []).push(term)
  }
  return found ?? []
}
