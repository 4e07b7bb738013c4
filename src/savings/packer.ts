import type { Meter } from '../core/ports.ts'
import type { Pause } from '../core/pause.ts'
import type { Message } from '../core/prompt.ts'
import { excerptUnit, type Snippet } from './excerpt.ts'
import type { SegmentAnalysis } from './segment-analysis.ts'
import type { Segment } from './conversation.ts'

/** One unit on its way into or past the basket. */
export interface Entry {
  readonly unit: Segment
  readonly place: number
  /** Exact. */
  readonly tokens: number
  readonly reading: SegmentAnalysis
  /** Worth for each token, for the order of whole units. */
  value: number
  /** Its score as a share of the best one's, for its passages. */
  share: number
  state: 'out' | 'excerpt' | 'whole'
  /** Its replacement, unless it is left out. */
  messages: readonly Message[]
  picked: Snippet[]
  /** What it takes of the room. */
  spent: number
}

/** Holds what was taken, never more than its room. */
export interface Packer {
  readonly room: number
  readonly spent: () => number
  /** Takes units whole, in this order, those that fit: within `limit` tokens together and within the room. */
  takeWhole(entries: readonly Entry[], limit: number): void
  /** Takes the calls of units without their results, those that fit. */
  takeSkeletons(entries: readonly Entry[], limit: number): void
  /** Takes passages of units from the last back, within `limit` tokens together and within the room. */
  takeLast(entries: readonly Entry[], limit: number): void
  /** Takes the best passages of what is not whole, by their estimated size; true when it took any. */
  takePassages(entries: readonly Entry[], scores: ReadonlyMap<Snippet, number>): Promise<boolean>
  /** Replaces estimates by exact sizes; gives back the last passages of what turned out too large. */
  measure(entries: readonly Entry[], signal: AbortSignal): Promise<void>
}

const UNIT_SHARE = 0.5
const PASSAGE_POWER = 0.6
const PASSAGE_FRAME = 3
const SMALL = 20

export function createPacker(room: number, { meter, pause }: { readonly meter: Meter; readonly pause: Pause }): Packer {
  let spent = 0
  const stale = new Set<Entry>()
  let offers: readonly Offer[] | undefined

  const put = (entry: Entry, state: 'excerpt' | 'whole', cost: number): void => {
    spent += cost - entry.spent
    entry.spent = cost
    entry.state = state
  }

  const takeWhole = (entries: readonly Entry[], limit: number): void => {
    let left = limit
    for (const entry of entries) {
      const cost = entry.tokens - entry.spent
      if (entry.state === 'whole' || cost > left || spent + cost > room) continue
      left -= cost
      put(entry, 'whole', entry.tokens)
      entry.messages = entry.unit.messages
      stale.delete(entry)
    }
  }

  const takeSkeletons = (entries: readonly Entry[], limit: number): void => {
    let left = limit
    for (const entry of entries) {
      const cost = entry.reading.skeletonTokens
      if (entry.state !== 'out' || cost > left || spent + cost > room) continue
      left -= cost
      put(entry, 'excerpt', cost)
      stale.add(entry)
    }
  }

  const takeLast = (entries: readonly Entry[], limit: number): void => {
    let left = limit
    for (const entry of entries.filter(({ state }) => state !== 'whole')) {
      for (const passage of entry.reading.passages.toReversed()) {
        const cost = costOf(entry, passage)
        if (cost > left || spent + cost > room) break
        left -= cost
        pick(entry, passage, cost)
      }
    }
  }

  const pick = (entry: Entry, passage: Snippet, cost: number): void => {
    put(entry, 'excerpt', entry.spent + cost)
    entry.picked.push(passage)
    stale.add(entry)
  }

  const takePassages = async (entries: readonly Entry[], scores: ReadonlyMap<Snippet, number>): Promise<boolean> => {
    offers ??= await offersIn(entries, scores, pause)
    const shown = new Set<number>()
    for (const entry of entries) {
      if (entry.state !== 'out') for (const { mark } of shownPassages(entry)) shown.add(mark)
    }
    let took = false
    for (const { entry, passage } of offers) {
      const due = pause()
      if (due !== undefined) await due
      if (entry.state === 'whole' || shown.has(passage.mark)) continue
      const cost = costOf(entry, passage)
      if (spent + cost > room) continue
      pick(entry, passage, cost)
      shown.add(passage.mark)
      took = true
    }
    return took
  }

  const sizeOf = async (entry: Entry, signal: AbortSignal): Promise<number> => {
    entry.messages = excerptUnit(entry.unit, entry.picked)
    let tokens = 0
    for (const message of entry.messages) tokens += await meter.countOfMessage(message, signal)
    return tokens
  }

  const measure = async (entries: readonly Entry[], signal: AbortSignal): Promise<void> => {
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

  /** Gives back passages, the last picked first, until the rest fits. */
  const shrink = async (entry: Entry, signal: AbortSignal): Promise<void> => {
    const over = (): boolean => spent > room
    while (over() && entry.picked.length > 1) {
      entry.picked.pop()
      put(entry, 'excerpt', await sizeOf(entry, signal))
    }
  }

  return { room, spent: () => spent, takeWhole, takeSkeletons, takeLast, takePassages, measure }
}

/** Tokens of a passage in an excerpt: the first one also brings the unit's skeleton. */
function costOf(entry: Entry, passage: Snippet): number {
  return passage.tokens + PASSAGE_FRAME + (entry.state === 'out' ? entry.reading.skeletonTokens : 0)
}

/** The passages that may be taken, best first. Those without any worth fill the room last, in their order. */
async function offersIn(
  entries: readonly Entry[],
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

function shownPassages(entry: Entry): readonly Snippet[] {
  return entry.state === 'whole' ? entry.reading.passages : entry.picked
}

interface Offer {
  readonly entry: Entry
  readonly passage: Snippet
  readonly worth: number
}

/** What is not whole when passages are first asked for. */
function offersOf(entry: Entry, scores: ReadonlyMap<Snippet, number>): readonly Offer[] {
  if (entry.state === 'whole') return []
  const frame = entry.state === 'out' ? entry.reading.skeletonTokens : 0
  return entry.reading.passages.map((passage) => {
    const score = (scores.get(passage) ?? 0) + UNIT_SHARE * entry.share
    return { entry, passage, worth: score / (passage.tokens + SMALL + frame / 4) ** PASSAGE_POWER }
  })
}
