import { hasOnlyToolResults, lastUserIndex } from '../../core/messages.ts'
import { type Message } from '../../core/prompt.ts'
import { forEachInSteps, mapSlices, runSteps, type Steps } from '../../core/steps.ts'
import { linksOf, type PartLinks } from './item-types.ts'

/** The unit of selection, so that a tool call stays with its result. */
export interface Segment {
  readonly kind: 'user' | 'assistant' | 'tool-use'
  readonly messages: readonly Message[]
  readonly indexes: readonly number[]
  /** True if every tier sends the segment as received. @default false */
  readonly isFixed?: boolean
}

/** System messages belong to no segment, because they are never cut. */
export interface SplitConversation {
  readonly old: readonly Segment[]
  /** The live turn: the segment with the last user message (the last segment if there is none) and all later ones. */
  readonly live: readonly Segment[]
}

export function splitConversation(messages: readonly Message[]): SplitConversation {
  return runSteps(splitInSteps(messages))
}

/** As `splitConversation`. */
export function* splitInSteps(messages: readonly Message[]): Steps<SplitConversation> {
  const segments = yield* segmentsOf(messages)
  const questionIndex = lastUserIndex(messages)
  const liveIndex = segments.findLastIndex(({ indexes }) => questionIndex === -1 || (indexes[0] ?? 0) <= questionIndex)
  const start = Math.max(0, liveIndex)
  return { old: segments.slice(0, start), live: segments.slice(start) }
}

interface OpenSegment {
  readonly messages: Message[]
  readonly indexes: number[]
  readonly links: PartLinks[]
}

function* segmentsOf(messages: readonly Message[]): Steps<readonly Segment[]> {
  const linksByMessage = yield* mapSlices(messages, (slice) => slice.map(({ parts }) => parts.map(linksOf)))
  const { lastIndexes, orphans } = yield* findRanges(messages, linksByMessage)
  const groups: OpenSegment[] = []
  let end = -1
  yield* forEachInSteps(messages, (message, index) => {
    if (message.role === 'system') return
    const last = groups.at(-1)
    const links = linksByMessage[index] ?? []
    if (last !== undefined && index <= end) {
      last.messages.push(message)
      last.indexes.push(index)
      last.links.push(...links)
    } else groups.push({ messages: [message], indexes: [index], links: [...links] })
    end = Math.max(end, lastIndexes.get(index) ?? -1)
  })
  return yield* fixTurns(yield* mapSlices(groups, (slice) => slice.map((group) => toSegment(group, orphans))))
}

interface Ranges {
  /** Per message that later messages belong to, the index of the last of them. */
  readonly lastIndexes: ReadonlyMap<number, number>
  /** Messages with a result whose call is missing. */
  readonly orphans: ReadonlySet<number>
}

/** A range reaches from a call to its result. Ids may repeat: a result completes the last open call with its id. */
function* findRanges(messages: readonly Message[], linksByMessage: readonly (readonly PartLinks[])[]): Steps<Ranges> {
  const openIndexes = new Map<string, number[]>()
  const lastIndexes = new Map<number, number>()
  const orphans = new Set<number>()
  yield* forEachInSteps(messages, (message, index) => {
    if (message.role === 'system') return
    for (const { opens, closes } of linksByMessage[index] ?? []) {
      if (closes !== undefined) {
        const start = openIndexes.get(closes)?.pop()
        if (start === undefined) orphans.add(index)
        else lastIndexes.set(start, index)
      }
      if (opens === undefined) continue
      const open = openIndexes.get(opens)
      if (open === undefined) openIndexes.set(opens, [index])
      else open.push(index)
    }
  })
  return { lastIndexes, orphans }
}

interface DraftSegment extends Segment {
  readonly keepsTurn: boolean
}

function toSegment({ messages, indexes, links }: OpenSegment, orphans: ReadonlySet<number>): DraftSegment {
  const kind = kindOf(messages, links)
  const keepsTurn = links.some(({ keeps }) => keeps === 'turn')
  const isFixed =
    links.some(({ keeps }) => keeps !== undefined) ||
    indexes.some((index) => orphans.has(index)) ||
    (kind === 'tool-use' && messages.some(isUserMessage))
  return { kind, messages, indexes, isFixed, keepsTurn }
}

function kindOf(messages: readonly Message[], links: readonly PartLinks[]): Segment['kind'] {
  if (links.some(({ opens }) => opens !== undefined)) return 'tool-use'
  const [first] = messages
  if (first?.role === 'user' && !hasOnlyToolResults(first)) return 'user'
  return first?.role === 'assistant' ? 'assistant' : 'tool-use'
}

/** True for a message of the user between a call and its result. */
function isUserMessage({ role, parts }: Message): boolean {
  return role === 'user' && !parts.some((part) => part.type === 'tool-result')
}

/** Fixes all segments around a part of an unknown type, because they may belong together. */
function* fixTurns(drafts: readonly DraftSegment[]): Steps<readonly Segment[]> {
  const segments: Segment[] = []
  let turn: DraftSegment[] = []
  const closeTurn = (): void => {
    const isTurnFixed = turn.some(({ keepsTurn }) => keepsTurn)
    for (const { kind, messages, indexes, isFixed } of turn)
      segments.push(
        isTurnFixed || isFixed === true ? { kind, messages, indexes, isFixed: true } : { kind, messages, indexes },
      )
    turn = []
  }
  yield* forEachInSteps(drafts, (draft) => {
    const isUserTurn = draft.kind === 'user' && !draft.keepsTurn
    if (isUserTurn) closeTurn()
    turn.push(draft)
    if (isUserTurn) closeTurn()
  })
  closeTurn()
  return segments
}
