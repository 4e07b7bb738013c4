import type { Meter } from '../core/ports.ts'
import type { Pause } from '../core/async.ts'
import type { Message } from '../core/prompt.ts'
import { excerptSegment, type Snippet } from './excerpt.ts'
import type { SegmentAnalysis } from './segment-analysis.ts'
import type { Segment } from './conversation.ts'

export interface PackerEntry {
  readonly segment: Segment
  readonly index: number
  readonly tokens: number
  readonly analysis: SegmentAnalysis
  /** Value per token. Determines the order of complete segments. */
  value: number
  /** Score divided by the best score. Determines the order of snippets. */
  relativeScore: number
  state: 'out' | 'excerpt' | 'full'
  messages: readonly Message[]
  pickedSnippets: Snippet[]
  usedTokens: number
}

/** Packs segments and snippets into a capacity in tokens. `maxTokens` bounds the tokens that one call adds. */
export interface Packer {
  readonly capacity: number
  readonly usedTokens: () => number
  packSegments(entries: readonly PackerEntry[], maxTokens: number): void
  packSkeletons(entries: readonly PackerEntry[], maxTokens: number): void
  packLastSnippets(entries: readonly PackerEntry[], maxTokens: number): void
  /** Packs the best snippets of incomplete segments by estimated size. Returns true if it packed any snippet. */
  packBestSnippets(entries: readonly PackerEntry[], scores: ReadonlyMap<Snippet, number>): Promise<boolean>
  /**
   * Replaces estimated sizes with exact ones. Then shrinks the least relevant excerpts, and removes whole excerpts if
   * necessary, until the capacity suffices.
   */
  measureAndTrim(entries: readonly PackerEntry[], signal: AbortSignal): Promise<void>
}

const SEGMENT_WEIGHT = 0.5
/** A snippet's score is divided by its size to this power. */
const SIZE_POWER = 0.6
/** Added to the size of each snippet. Prevents a preference for tiny snippets. */
const SIZE_OFFSET_TOKENS = 20
const GAP_TOKENS = 3

export function createPacker(
  capacity: number,
  { meter, pause }: { readonly meter: Meter; readonly pause: Pause },
): Packer {
  let usedTokens = 0
  const unmeasured = new Set<PackerEntry>()
  let rankedSnippets: readonly RankedSnippet[] | undefined

  const pack = (entry: PackerEntry, state: 'excerpt' | 'full', cost: number): void => {
    usedTokens += cost - entry.usedTokens
    entry.usedTokens = cost
    entry.state = state
  }

  const packSegments = (entries: readonly PackerEntry[], maxTokens: number): void => {
    let remaining = maxTokens
    for (const entry of entries) {
      const cost = entry.tokens - entry.usedTokens
      if (entry.state === 'full' || cost > remaining || usedTokens + cost > capacity) continue
      remaining -= cost
      pack(entry, 'full', entry.tokens)
      entry.messages = entry.segment.messages
      unmeasured.delete(entry)
    }
  }

  const packSkeletons = (entries: readonly PackerEntry[], maxTokens: number): void => {
    let remaining = maxTokens
    for (const entry of entries) {
      const cost = entry.analysis.skeletonTokens
      if (entry.state !== 'out' || cost > remaining || usedTokens + cost > capacity) continue
      remaining -= cost
      pack(entry, 'excerpt', cost)
      unmeasured.add(entry)
    }
  }

  const packLastSnippets = (entries: readonly PackerEntry[], maxTokens: number): void => {
    let remaining = maxTokens
    for (const entry of entries.filter(({ state }) => state !== 'full')) {
      for (const snippet of entry.analysis.snippets.toReversed()) {
        const cost = costOf(entry, snippet)
        if (cost > remaining || usedTokens + cost > capacity) break
        remaining -= cost
        pick(entry, snippet, cost)
      }
    }
  }

  const pick = (entry: PackerEntry, snippet: Snippet, cost: number): void => {
    pack(entry, 'excerpt', entry.usedTokens + cost)
    entry.pickedSnippets.push(snippet)
    unmeasured.add(entry)
  }

  const packBestSnippets = async (
    entries: readonly PackerEntry[],
    scores: ReadonlyMap<Snippet, number>,
  ): Promise<boolean> => {
    rankedSnippets ??= await rankSnippets(entries, scores, pause)
    const packed = new Set<number>()
    for (const entry of entries) for (const { fingerprint } of packedSnippets(entry)) packed.add(fingerprint)
    let hasPacked = false
    for (const { entry, snippet } of rankedSnippets) {
      const pausing = pause()
      if (pausing !== undefined) await pausing
      if (entry.state === 'full' || packed.has(snippet.fingerprint)) continue
      const cost = costOf(entry, snippet)
      if (usedTokens + cost > capacity) continue
      pick(entry, snippet, cost)
      packed.add(snippet.fingerprint)
      hasPacked = true
    }
    return hasPacked
  }

  /** Replaces the messages of the entry. Returns their exact size, in tokens. */
  const rebuildExcerpt = async (entry: PackerEntry, signal: AbortSignal): Promise<number> => {
    entry.messages = excerptSegment(entry.segment, entry.pickedSnippets)
    let tokens = 0
    for (const message of entry.messages) tokens += await meter.countMessage(message, signal)
    return tokens
  }

  const measureAndTrim = async (entries: readonly PackerEntry[], signal: AbortSignal): Promise<void> => {
    for (const entry of unmeasured) pack(entry, 'excerpt', await rebuildExcerpt(entry, signal))
    unmeasured.clear()
    const leastRelevantFirst = entries
      .filter((entry) => entry.state === 'excerpt')
      .toSorted((a, b) => a.relativeScore - b.relativeScore)
    for (const entry of leastRelevantFirst) await shrink(entry, signal)
    for (const entry of leastRelevantFirst) {
      if (usedTokens <= capacity) return
      usedTokens -= entry.usedTokens
      entry.usedTokens = 0
      entry.state = 'out'
      entry.pickedSnippets.length = 0
    }
  }

  const shrink = async (entry: PackerEntry, signal: AbortSignal): Promise<void> => {
    while (usedTokens > capacity && entry.pickedSnippets.length > 1) {
      entry.pickedSnippets.pop()
      pack(entry, 'excerpt', await rebuildExcerpt(entry, signal))
    }
  }

  return {
    capacity,
    usedTokens: () => usedTokens,
    packSegments,
    packSkeletons,
    packLastSnippets,
    packBestSnippets,
    measureAndTrim,
  }
}

/** The first snippet of an excerpt also adds the segment's skeleton. */
function costOf(entry: PackerEntry, snippet: Snippet): number {
  return snippet.tokens + GAP_TOKENS + (entry.state === 'out' ? entry.analysis.skeletonTokens : 0)
}

/** Snippets without a score come last, in their original order. */
async function rankSnippets(
  entries: readonly PackerEntry[],
  scores: ReadonlyMap<Snippet, number>,
  pause: Pause,
): Promise<readonly RankedSnippet[]> {
  const scored: RankedSnippet[] = []
  const unscored: RankedSnippet[] = []
  for (const entry of entries) {
    for (const ranked of rankedSnippetsOf(entry, scores)) (ranked.value > 0 ? scored : unscored).push(ranked)
    const pausing = pause()
    if (pausing !== undefined) await pausing
  }
  scored.sort((a, b) => b.value - a.value)
  return scored.concat(unscored)
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

function rankedSnippetsOf(entry: PackerEntry, scores: ReadonlyMap<Snippet, number>): readonly RankedSnippet[] {
  if (entry.state === 'full') return []
  const skeletonTokens = entry.state === 'out' ? entry.analysis.skeletonTokens : 0
  return entry.analysis.snippets.map((snippet) => {
    const score = (scores.get(snippet) ?? 0) + SEGMENT_WEIGHT * entry.relativeScore
    return { entry, snippet, value: score / (snippet.tokens + SIZE_OFFSET_TOKENS + skeletonTokens / 4) ** SIZE_POWER }
  })
}
