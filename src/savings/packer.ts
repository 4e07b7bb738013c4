import type { Meter } from '../core/ports.ts'
import type { Pause } from '../core/async.ts'
import type { Message } from '../core/prompt.ts'
import { excerptSegment, type Snippet } from './excerpt.ts'
import type { SegmentAnalysis } from './segment-analysis.ts'
import type { Segment } from './conversation.ts'

/** A segment, and the decision whether it is packed. */
export interface PackerEntry {
  readonly segment: Segment
  readonly place: number
  /** Exact. */
  readonly tokens: number
  readonly analysis: SegmentAnalysis
  /** Value per token; decides the order of whole segments. */
  value: number
  /** Score as a share of the best score; decides the order of snippets. */
  share: number
  state: 'out' | 'excerpt' | 'whole'
  /** The messages that replace it, unless it is left out. */
  messages: readonly Message[]
  picked: Snippet[]
  /** Tokens that it uses. */
  spent: number
}

/** Packs segments and snippets into a number of tokens, which is never exceeded. */
export interface Packer {
  readonly room: number
  readonly spent: () => number
  /** Packs whole segments that fit, in this order, within `limit` tokens together. */
  takeWhole(entries: readonly PackerEntry[], limit: number): void
  /** Packs the tool calls of segments that fit, without their results. */
  takeSkeletons(entries: readonly PackerEntry[], limit: number): void
  /** Packs snippets of segments from the last back, within `limit` tokens together. */
  takeLast(entries: readonly PackerEntry[], limit: number): void
  /** Packs the best snippets of segments that are not whole, by estimated size. Returns true when it packed any. */
  takeSnippets(entries: readonly PackerEntry[], scores: ReadonlyMap<Snippet, number>): Promise<boolean>
  /** Replaces estimates by exact sizes, and removes the last snippets of segments that are too large. */
  measure(entries: readonly PackerEntry[], signal: AbortSignal): Promise<void>
}

const SEGMENT_SHARE = 0.5
const SNIPPET_POWER = 0.6
const SNIPPET_FRAME = 3
const SMALL = 20

export function createPacker(room: number, { meter, pause }: { readonly meter: Meter; readonly pause: Pause }): Packer {
  let spent = 0
  const stale = new Set<PackerEntry>()
  let offers: readonly Offer[] | undefined

  const put = (entry: PackerEntry, state: 'excerpt' | 'whole', cost: number): void => {
    spent += cost - entry.spent
    entry.spent = cost
    entry.state = state
  }

  const takeWhole = (entries: readonly PackerEntry[], limit: number): void => {
    let left = limit
    for (const entry of entries) {
      const cost = entry.tokens - entry.spent
      if (entry.state === 'whole' || cost > left || spent + cost > room) continue
      left -= cost
      put(entry, 'whole', entry.tokens)
      entry.messages = entry.segment.messages
      stale.delete(entry)
    }
  }

  const takeSkeletons = (entries: readonly PackerEntry[], limit: number): void => {
    let left = limit
    for (const entry of entries) {
      const cost = entry.analysis.skeletonTokens
      if (entry.state !== 'out' || cost > left || spent + cost > room) continue
      left -= cost
      put(entry, 'excerpt', cost)
      stale.add(entry)
    }
  }

  const takeLast = (entries: readonly PackerEntry[], limit: number): void => {
    let left = limit
    for (const entry of entries.filter(({ state }) => state !== 'whole')) {
      for (const snippet of entry.analysis.snippets.toReversed()) {
        const cost = costOf(entry, snippet)
        if (cost > left || spent + cost > room) break
        left -= cost
        pick(entry, snippet, cost)
      }
    }
  }

  const pick = (entry: PackerEntry, snippet: Snippet, cost: number): void => {
    put(entry, 'excerpt', entry.spent + cost)
    entry.picked.push(snippet)
    stale.add(entry)
  }

  const takeSnippets = async (
    entries: readonly PackerEntry[],
    scores: ReadonlyMap<Snippet, number>,
  ): Promise<boolean> => {
    offers ??= await offersIn(entries, scores, pause)
    const shown = new Set<number>()
    for (const entry of entries) {
      if (entry.state !== 'out') for (const { mark } of shownSnippets(entry)) shown.add(mark)
    }
    let took = false
    for (const { entry, snippet } of offers) {
      const due = pause()
      if (due !== undefined) await due
      if (entry.state === 'whole' || shown.has(snippet.mark)) continue
      const cost = costOf(entry, snippet)
      if (spent + cost > room) continue
      pick(entry, snippet, cost)
      shown.add(snippet.mark)
      took = true
    }
    return took
  }

  const sizeOf = async (entry: PackerEntry, signal: AbortSignal): Promise<number> => {
    entry.messages = excerptSegment(entry.segment, entry.picked)
    let tokens = 0
    for (const message of entry.messages) tokens += await meter.countOfMessage(message, signal)
    return tokens
  }

  const measure = async (entries: readonly PackerEntry[], signal: AbortSignal): Promise<void> => {
    for (const entry of stale) put(entry, 'excerpt', await sizeOf(entry, signal))
    stale.clear()
    const cheapestFirst = entries.filter((entry) => entry.state === 'excerpt').toSorted((a, b) => a.share - b.share)
    for (const entry of cheapestFirst) await shrink(entry, signal)
    for (const entry of cheapestFirst) {
      if (spent <= room) return
      spent -= entry.spent
      entry.spent = 0
      entry.state = 'out'
    }
  }

  /** Removes snippets, the last picked first, until the rest fits. */
  const shrink = async (entry: PackerEntry, signal: AbortSignal): Promise<void> => {
    const over = (): boolean => spent > room
    while (over() && entry.picked.length > 1) {
      entry.picked.pop()
      put(entry, 'excerpt', await sizeOf(entry, signal))
    }
  }

  return { room, spent: () => spent, takeWhole, takeSkeletons, takeLast, takeSnippets, measure }
}

/** Returns the tokens of a snippet in an excerpt. The first snippet adds the segment's skeleton. */
function costOf(entry: PackerEntry, snippet: Snippet): number {
  return snippet.tokens + SNIPPET_FRAME + (entry.state === 'out' ? entry.analysis.skeletonTokens : 0)
}

/** Returns the snippets that may be packed, best first. Snippets without a score come last, in their order. */
async function offersIn(
  entries: readonly PackerEntry[],
  scores: ReadonlyMap<Snippet, number>,
  pause: Pause,
): Promise<readonly Offer[]> {
  const worthy: Offer[] = []
  const others: Offer[] = []
  for (const entry of entries) {
    for (const offer of offersOf(entry, scores)) (offer.worth > 0 ? worthy : others).push(offer)
    const due = pause()
    if (due !== undefined) await due
  }
  worthy.sort((a, b) => b.worth - a.worth)
  return worthy.concat(others)
}

function shownSnippets(entry: PackerEntry): readonly Snippet[] {
  return entry.state === 'whole' ? entry.analysis.snippets : entry.picked
}

interface Offer {
  readonly entry: PackerEntry
  readonly snippet: Snippet
  readonly worth: number
}

/** Offers the snippets of a segment that is not whole. */
function offersOf(entry: PackerEntry, scores: ReadonlyMap<Snippet, number>): readonly Offer[] {
  if (entry.state === 'whole') return []
  const frame = entry.state === 'out' ? entry.analysis.skeletonTokens : 0
  return entry.analysis.snippets.map((snippet) => {
    const score = (scores.get(snippet) ?? 0) + SEGMENT_SHARE * entry.share
    return { entry, snippet, worth: score / (snippet.tokens + SMALL + frame / 4) ** SNIPPET_POWER }
  })
}
