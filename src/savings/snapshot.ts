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
  /** Per segment that is still there: its place, then -1 for the whole or the places of its snippets. */
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

/** What the frozen cut leaves of the conversation as it is now; the live turn's first segment is always whole. */
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

/** What was remembered when the conversation was a few segments shorter, or the same. */
export function recallAt(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  kind: string,
): Promise<string | undefined> {
  return recallBetween(memory, owner, conversation, { kind, least: 0 })
}

/** What was remembered when the conversation was a few segments shorter: on an earlier turn, not when this one was sent before. */
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
