import type { Message } from '../core/prompt.ts'
import { type Block, excerptSegment, type Selection } from './excerpt.ts'
import { asArray, asCount, isJsonObject, parseJson } from '../core/json.ts'
import type { Conversation, Segment } from './conversation.ts'
import type { ConversationMemory } from './memory.ts'
import type { AnalyzeSegment } from './segment-analysis.ts'
import type { Selected } from './selection.ts'

/**
 * A cut that is kept over the turns of a conversation, so that what was sent stays the same to the byte and the
 * upstream's own cache goes on knowing it: of the first `from` segments these, and everything after them.
 */
export interface Snapshot {
  readonly from: number
  /** Per kept segment: its position, then -1 for the whole segment or the positions of its snippets. */
  readonly picks: readonly (readonly number[])[]
  /** Text of the notice or summary. */
  readonly notice: string
  /** Position of the live turn when the cut was made. A bridge inserted before it stays there. */
  readonly asked: number
  /**
   * Parts that were looked up for single questions, each before its question. They are never removed, so that the
   * prefix is stable.
   */
  readonly blocks: readonly Block[]
  /** When it was sent last, milliseconds since 1970. */
  readonly at: number
}

/**
 * Number of shorter prefixes to look up. A turn adds a question and an answer, or a step of a loop; clients sometimes
 * add several at once.
 */
const STEPS_BACK = 4

export function snapshotOf(conversation: Conversation, selected: Selected, notice: string, at: number): Snapshot {
  const picks = conversation.segments.flatMap((segment, at) => {
    if (!selected.selection.has(segment)) return []
    return [[at, ...(selected.picks.get(segment) ?? [-1])]]
  })
  return {
    from: conversation.segments.length,
    picks,
    notice,
    asked: conversation.turns.live[0]?.places[0] ?? -1,
    blocks: [],
    at,
  }
}

/** Applies a snapshot to the conversation. The first segment of the live turn is always whole. */
export async function restore(
  conversation: Conversation,
  snapshot: Snapshot,
  read: (segment: Segment) => ReturnType<AnalyzeSegment>,
): Promise<Selection> {
  const selection = new Map<Segment, readonly Message[]>()
  for (const [at, ...places] of snapshot.picks) {
    const segment = conversation.segments[at ?? -1]
    if (segment === undefined) continue
    if (places[0] === -1) selection.set(segment, segment.messages)
    else {
      const { snippets } = await read(segment)
      selection.set(
        segment,
        excerptSegment(
          segment,
          snippets.filter((_, place) => places.includes(place)),
        ),
      )
    }
  }
  for (const segment of conversation.segments.slice(snapshot.from)) selection.set(segment, segment.messages)
  const asking = conversation.turns.live[0]
  if (asking !== undefined) selection.set(asking, asking.messages)
  return selection
}

export async function rememberAt(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  entry: { kind: string; value: string },
): Promise<void> {
  await memory.remember(owner, `${entry.kind}:${conversation.chain.at(conversation.segments.length)}`, entry.value)
}

/** Returns what was remembered for this conversation or for one a few segments shorter. */
export function recallAt(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  kind: string,
): Promise<string | undefined> {
  return recallBetween(memory, owner, conversation, { kind, least: 0 })
}

/** Returns what was remembered on an earlier turn, excluding an earlier attempt of this request. */
export function recallEarlier(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  kind: string,
): Promise<string | undefined> {
  return recallBetween(memory, owner, conversation, { kind, least: 1 })
}

async function recallBetween(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  { kind, least }: { readonly kind: string; readonly least: number },
): Promise<string | undefined> {
  const counts = Array.from(
    { length: STEPS_BACK + 1 - least },
    (_, back) => conversation.segments.length - least - back,
  ).filter((count) => count > 0)
  const found = await Promise.all(
    counts.map(async (count) => memory.recall(owner, `${kind}:${conversation.chain.at(count)}`)),
  )
  return found.find((value) => value !== undefined)
}

/** Parses a stored snapshot; undefined for an invalid value. */
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
