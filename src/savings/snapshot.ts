import type { Message } from '../core/prompt.ts'
import { type Block, excerptUnit, type Selection } from './excerpt.ts'
import { asArray, asCount, isJsonObject, parseJson } from '../core/json.ts'
import type { Conversation, Segment } from './conversation.ts'
import type { Memory } from './memory.ts'
import type { AnalyzeSegment } from './segment-analysis.ts'
import type { Selected } from './selection.ts'

/**
 * A cut that is kept over the turns of a conversation, so that what was sent stays the same to the byte and the
 * upstream's own cache goes on knowing it: of the first `from` units these, and everything after them.
 */
export interface Snapshot {
  readonly from: number
  /** Per unit that is still there: its place, then -1 for the whole or the places of its passages. */
  readonly picks: readonly (readonly number[])[]
  /** What the notice or the summary says, word for word. */
  readonly notice: string
  /** Where the live turn began when the cut was made: a bridge that stood before it goes on standing there. */
  readonly asked: number
  /** What was looked up for single questions, each before the message that asked; never taken back, so nothing moves. */
  readonly blocks: readonly Block[]
  /** When it was sent last, milliseconds since 1970. */
  readonly at: number
}

/** The next turn adds a word and an answer, or a step of a loop; clients sometimes add a few at once. */
const STEPS_BACK = 4

export function snapshotOf(talk: Conversation, selected: Selected, notice: string, at: number): Snapshot {
  const picks = talk.units.flatMap((unit, at) => {
    if (!selected.selection.has(unit)) return []
    return [[at, ...(selected.picks.get(unit) ?? [-1])]]
  })
  return { from: talk.units.length, picks, notice, asked: talk.turns.live[0]?.places[0] ?? -1, blocks: [], at }
}

/** What the frozen cut leaves of the conversation as it is now; the live turn's first unit is always whole. */
export async function restore(
  talk: Conversation,
  freeze: Snapshot,
  read: (unit: Segment) => ReturnType<AnalyzeSegment>,
): Promise<Selection> {
  const selection = new Map<Segment, readonly Message[]>()
  for (const [at, ...places] of freeze.picks) {
    const unit = talk.units[at ?? -1]
    if (unit === undefined) continue
    if (places[0] === -1) selection.set(unit, unit.messages)
    else {
      const { passages } = await read(unit)
      selection.set(
        unit,
        excerptUnit(
          unit,
          passages.filter((_, place) => places.includes(place)),
        ),
      )
    }
  }
  for (const unit of talk.units.slice(freeze.from)) selection.set(unit, unit.messages)
  const asking = talk.turns.live[0]
  if (asking !== undefined) selection.set(asking, asking.messages)
  return selection
}

export async function rememberAt(
  memory: Memory,
  owner: string,
  talk: Conversation,
  entry: { kind: string; value: string },
): Promise<void> {
  await memory.remember(owner, `${entry.kind}:${talk.chain.at(talk.units.length)}`, entry.value)
}

/** What was remembered when the conversation was a few units shorter, or the same. */
export function recallAt(memory: Memory, owner: string, talk: Conversation, kind: string): Promise<string | undefined> {
  return recallBetween(memory, owner, talk, { kind, least: 0 })
}

/** What was remembered when the conversation was a few units shorter: on an earlier turn, not when this one was sent before. */
export function recallEarlier(
  memory: Memory,
  owner: string,
  talk: Conversation,
  kind: string,
): Promise<string | undefined> {
  return recallBetween(memory, owner, talk, { kind, least: 1 })
}

async function recallBetween(
  memory: Memory,
  owner: string,
  talk: Conversation,
  { kind, least }: { readonly kind: string; readonly least: number },
): Promise<string | undefined> {
  const counts = Array.from({ length: STEPS_BACK + 1 - least }, (_, back) => talk.units.length - least - back).filter(
    (count) => count > 0,
  )
  const found = await Promise.all(counts.map(async (count) => memory.recall(owner, `${kind}:${talk.chain.at(count)}`)))
  return found.find((value) => value !== undefined)
}

/** Reads what a store gave back; undefined for anything that is no freeze. */
export function parseSnapshot(text: string | undefined): Snapshot | undefined {
  if (text === undefined) return undefined
  const value = parseJson(text)
  if (!isJsonObject(value)) return undefined
  const from = asCount(value['from'])
  const notice = value['notice']
  const asked = value['asked']
  if (from === undefined || typeof notice !== 'string' || typeof asked !== 'number') return undefined
  const picks = asArray(value['picks']).map((pick) => asArray(pick).filter((place) => typeof place === 'number'))
  const blocks = asArray(value['blocks']).flatMap((block) => {
    if (!isJsonObject(block)) return []
    const { before, text: words } = block
    return typeof before === 'number' && typeof words === 'string' ? [{ before, text: words }] : []
  })
  return { from, picks, notice, asked, blocks, at: asCount(value['at']) ?? 0 }
}
