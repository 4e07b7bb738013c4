import type { Message } from '../core/prompt.ts'
import { type Block, excerptSegment, type Selection } from './excerpt.ts'
import { asArray, asCount, isJsonObject, parseJson } from '../core/json.ts'
import type { Conversation, Segment } from './conversation.ts'
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
