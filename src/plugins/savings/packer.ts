import type { Pause } from '../../core/async.ts'
import type { Meter } from '../../core/ports.ts'
import type { Message } from '../../core/prompt.ts'
import type { Segment } from './conversation.ts'
import { excerptSegment, type SegmentAnalysis, type Snippet } from './excerpt.ts'
import { addAt, inverseFrequency, mapWithPauses, type QueryMatches } from './keywords.ts'

export interface PackerEntry {
  readonly segment: Segment
  readonly tokens: number
  readonly analysis: SegmentAnalysis
  /** Score of the segment and its partner, weighted by length and age. */
  value: number
  /** Score divided by the best score, and weighted by age. */
  relativeScore: number
  state: 'out' | 'excerpt' | 'full'
  messages: readonly Message[]
  pickedSnippets: Snippet[]
  usedTokens: number
}

interface PackerTools {
  readonly meter: Pick<Meter, 'countMessage'>
  readonly pause: Pause
  readonly signal: AbortSignal
}

const SEGMENT_WEIGHT = 0.5
const SIZE_POWER = 0.6
/** Limits the preference for tiny snippets. */
const SIZE_OFFSET_TOKENS = 20
const GAP_TOKENS = 3
const SNIPPETS_PER_PAUSE = 256

/** `maxTokens` limits the tokens that one call adds. */
export class Packer {
  usedTokens: number = 0
  readonly capacity: number
  readonly #tools: PackerTools
  /** Excerpts whose size is an estimate. */
  readonly #unmeasured = new Set<PackerEntry>()
  #rankedSnippets: readonly RankedSnippet[] | undefined

  constructor(capacity: number, tools: PackerTools) {
    this.capacity = capacity
    this.#tools = tools
  }

  packSegments(entries: readonly PackerEntry[], maxTokens: number): void {
    let remaining = maxTokens
    for (const entry of entries) {
      const cost = entry.tokens - entry.usedTokens
      if (entry.state === 'full' || cost > remaining || this.usedTokens + cost > this.capacity) continue
      remaining -= cost
      this.#setState(entry, 'full', entry.tokens)
      entry.messages = entry.segment.messages
      this.#unmeasured.delete(entry)
    }
  }

  packSkeletons(entries: readonly PackerEntry[], maxTokens: number): void {
    let remaining = maxTokens
    for (const entry of entries) {
      const cost = entry.analysis.skeletonTokens
      if (entry.state !== 'out' || cost > remaining || this.usedTokens + cost > this.capacity) continue
      remaining -= cost
      this.#setState(entry, 'excerpt', cost)
      this.#unmeasured.add(entry)
    }
  }

  packLastSnippets(entry: PackerEntry, maxTokens: number): void {
    if (entry.state === 'full') return
    let remaining = maxTokens
    for (const snippet of entry.analysis.snippets.toReversed()) {
      const cost = costOf(entry, snippet)
      if (cost > remaining || this.usedTokens + cost > this.capacity) break
      remaining -= cost
      this.#pick(entry, snippet, cost)
    }
  }

  /** @param scores Of the snippets of all entries. */
  async packBestSnippets(entries: readonly PackerEntry[], scores: Float64Array): Promise<boolean> {
    const { pause } = this.#tools
    this.#rankedSnippets ??= await rankSnippets(entries, scores, pause)
    const packed = new Set(entries.flatMap(packedSnippets).map(({ fingerprint }) => fingerprint))
    let hasPacked = false
    for (const [index, { entry, snippet }] of this.#rankedSnippets.entries()) {
      if (index % SNIPPETS_PER_PAUSE === 0) await pause()
      const cost = costOf(entry, snippet)
      // The set is searched last, because most snippets do not fit.
      if (entry.state === 'full' || this.usedTokens + cost > this.capacity || packed.has(snippet.fingerprint)) continue
      this.#pick(entry, snippet, cost)
      packed.add(snippet.fingerprint)
      hasPacked = true
    }
    return hasPacked
  }

  async measureAndTrim(entries: readonly PackerEntry[]): Promise<void> {
    for (const entry of this.#unmeasured) await this.#measure(entry)
    this.#unmeasured.clear()
    const leastRelevantFirst = entries
      .filter((entry) => entry.state === 'excerpt')
      .toSorted((a, b) => a.relativeScore - b.relativeScore)
    for (const entry of leastRelevantFirst) if (this.usedTokens > this.capacity) await this.#shrink(entry)
    for (const entry of leastRelevantFirst) {
      if (this.usedTokens <= this.capacity) return
      this.#setState(entry, 'out', 0)
      entry.pickedSnippets.length = 0
    }
  }

  #setState(entry: PackerEntry, state: PackerEntry['state'], tokens: number): void {
    this.usedTokens += tokens - entry.usedTokens
    entry.usedTokens = tokens
    entry.state = state
  }

  #pick(entry: PackerEntry, snippet: Snippet, cost: number): void {
    this.#setState(entry, 'excerpt', entry.usedTokens + cost)
    entry.pickedSnippets.push(snippet)
    this.#unmeasured.add(entry)
  }

  /** Searches for the number of snippets to keep, because each measurement counts the whole excerpt. */
  async #shrink(entry: PackerEntry): Promise<void> {
    const picked = entry.pickedSnippets
    const keep = async (count: number): Promise<void> => {
      entry.pickedSnippets = picked.slice(0, count)
      await this.#measure(entry)
    }
    let [kept, tooMany, step] = [1, picked.length, 1]
    while (tooMany - kept > 1) {
      const count = Math.max(kept + 1, tooMany - step)
      await keep(count)
      if (this.usedTokens <= this.capacity) kept = count
      else tooMany = count
      step = kept === 1 ? 2 * step : Math.ceil((tooMany - kept) / 2)
    }
    if (entry.pickedSnippets.length > kept) await keep(kept)
  }

  async #measure(entry: PackerEntry): Promise<void> {
    const { meter, signal } = this.#tools
    entry.messages = excerptSegment(entry.segment, entry.pickedSnippets)
    let tokens = 0
    for (const message of entry.messages) tokens += await meter.countMessage(message, signal)
    this.#setState(entry, 'excerpt', tokens)
  }
}

/** The first snippet of a segment that is not packed yet also adds the segment's skeleton. */
function costOf(entry: PackerEntry, snippet: Snippet): number {
  return snippet.tokens + GAP_TOKENS + (entry.state === 'out' ? entry.analysis.skeletonTokens : 0)
}

function packedSnippets({ state, analysis, pickedSnippets }: PackerEntry): readonly Snippet[] {
  if (state === 'out') return []
  return state === 'full' ? analysis.snippets : pickedSnippets
}

interface RankedSnippet {
  readonly entry: PackerEntry
  readonly snippet: Snippet
  readonly value: number
}

async function rankSnippets(
  entries: readonly PackerEntry[],
  scores: Float64Array,
  pause: Pause,
): Promise<readonly RankedSnippet[]> {
  const ranked: RankedSnippet[] = []
  let first = 0
  await mapWithPauses(entries, pause, (entry) => {
    if (entry.state !== 'full') addRankedSnippets(ranked, entry, scores, first)
    first += entry.analysis.snippets.length
  })
  return ranked.sort((a, b) => b.value - a.value)
}

/** @param first Index of the entry's first score. */
function addRankedSnippets(ranked: RankedSnippet[], entry: PackerEntry, scores: Float64Array, first: number): void {
  const skeletonTokens = entry.state === 'out' ? entry.analysis.skeletonTokens : 0
  for (const [index, snippet] of entry.analysis.snippets.entries()) {
    const score = (scores[first + index] ?? 0) + SEGMENT_WEIGHT * entry.relativeScore
    const value = score / (snippet.tokens + SIZE_OFFSET_TOKENS + skeletonTokens / 4) ** SIZE_POWER
    ranked.push({ entry, snippet, value })
  }
}

/** Scores of the snippets of all analyses, from 0 to 1. */
export async function scoreSnippets(
  analyses: readonly SegmentAnalysis[],
  { weights, found }: QueryMatches,
  pause: Pause,
): Promise<Float64Array> {
  const frequencies = new Int32Array(weights.length)
  for (const [index, matches] of found.entries()) {
    const offsets = analyses[index]?.termSnippets.offsets
    for (let at = 0; at < matches.length; at += 2) {
      const position = matches[at + 1] ?? 0
      addAt(frequencies, matches[at] ?? 0, (offsets?.[position + 1] ?? 0) - (offsets?.[position] ?? 0))
    }
  }
  const snippetCount = analyses.reduce((sum, { snippets }) => sum + snippets.length, 0)
  const rareWeights = weights.map((weight, index) => weight * inverseFrequency(snippetCount, frequencies[index] ?? 0))
  const scores = new Float64Array(snippetCount)
  let first = 0
  await mapWithPauses(analyses, pause, ({ snippets, termSnippets: { offsets, parts } }, index) => {
    const matches = found[index] ?? []
    for (let at = 0; at < matches.length; at += 2) {
      const position = matches[at + 1] ?? 0
      const weight = rareWeights[matches[at] ?? 0] ?? 0
      const end = offsets[position + 1] ?? 0
      for (let part = offsets[position] ?? 0; part < end; part++) addAt(scores, first + (parts[part] ?? 0), weight)
    }
    first += snippets.length
  })
  const max = scores.reduce((highest, score) => Math.max(highest, score), 1e-9)
  return scores.map((score) => score / max)
}
