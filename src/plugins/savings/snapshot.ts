import { asArray, asCount, asObject, type Json } from '../../core/json.ts'

/** Earlier parts of the conversation, inserted before the message with the index `before`. */
export interface Block {
  readonly before: number
  readonly text: string
}

/** Later turns repeat the cut, so that the upstream can read the prompt prefix from its cache. */
export interface Snapshot {
  /** Segments from this index on are sent unchanged. */
  readonly from: number
  /** One list per sent segment before `from`: its index, then its snippets' indexes, or -1 if it is unchanged. */
  readonly picks: readonly (readonly number[])[]
  readonly notice: string
  /** Index of the first message of the live turn at the time of the cut. A gap inserted before it stays there. */
  readonly questionIndexAtCut: number
  /** Sent again on each step of its live turn. The next question gets another block. @default none */
  readonly block?: Block
  readonly at: number
}

export function parseSnapshot(value: Json | undefined): Snapshot | undefined {
  const { from, picks, notice, questionIndexAtCut, block, at } = asObject(value) ?? {}
  if (typeof from !== 'number' || typeof notice !== 'string' || typeof questionIndexAtCut !== 'number') return undefined
  return {
    from,
    picks: asArray(picks).map((pick) => asArray(pick).filter((index) => typeof index === 'number')),
    notice,
    questionIndexAtCut,
    ...parseBlock(block),
    at: asCount(at) ?? 0,
  }
}

function parseBlock(value: Json | undefined): Pick<Snapshot, 'block'> {
  const { before, text } = asObject(value) ?? {}
  return typeof before === 'number' && typeof text === 'string' ? { block: { before, text } } : {}
}
