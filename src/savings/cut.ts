import type { Message, Prompt } from '../core/prompt.ts'
import { roundTokens } from './summary.ts'
import type { Conversation, Segment } from './conversation.ts'
import { asksForAnswer, queryOf } from './query.ts'
import { isCut, rebuild } from './excerpt.ts'
import { select, type Selected, type SelectionTools } from './selection.ts'
import type { TierJob } from './tier.ts'

/** A prompt reduced to the system prompt, the live turn and what the query needs. */
export interface Cut {
  readonly prompt: Prompt
  /** Exact. */
  readonly tokens: number
  /** Number of old segments that are kept, whole or in part. */
  readonly kept: number
  /** Number of segments that share a term with the query. */
  readonly matches: number
  /** Everything that is kept, including the live turn. */
  readonly selected: Selected
  /** The text that replaces what is left out. */
  readonly notice: string
}

export interface CutOptions {
  /** Maximum tokens of the whole prompt. */
  readonly cap: number
  /** Maximum tokens of an unchanged live turn. Above it, open tool results are excerpted. @default cap */
  readonly liveCap?: number
  /** Maximum tokens once the live turn is excerpted. @default cap */
  readonly excerptCap?: number
  /** Minimum tokens for old segments when the live turn fills the cap. @default 0 */
  readonly leastRoom?: number
  /** The newest messages that stay unchanged: this number, including the live turn, and at least this many tokens. */
  readonly newest?: { readonly messages: number; readonly tokens: number }
  /** Tokens for the exchange before the live turn. Within them it stays whole, above them in excerpts. @default 0 */
  readonly exchangeRoom?: number
  /** Ranks by the configured embedder beside the words. @default false */
  readonly byMeaning?: boolean
  /** Terms that a small model added to the query. */
  readonly terms?: readonly string[]
  /** Tokens for the notice. @default 48 */
  readonly noticeRoom?: number
  /** Returns the text that replaces the cut segments. @default a notice with their number of tokens */
  readonly notice?: (cut: readonly Segment[], tokens: number) => Promise<string>
}

const NOTICE_ROOM = 48
const ATTEMPTS = 6

/** Reduces a prompt to the cap; undefined when no segment can be left out or shortened. */
export async function cutToQuery(
  job: TierJob,
  conversation: Conversation,
  options: CutOptions,
  tools: SelectionTools,
): Promise<Cut | undefined> {
  const { pinned, segments, steps, newestRoom, taken, overflows } = await layOut(job, conversation, options, tools)
  if (segments.length === 0) return undefined
  const query = queryOf(conversation.turns, options.terms)
  const { owner, signal } = job
  const similarities = options.byMeaning === true ? await job.meaning?.similarities(conversation) : undefined
  const limit = overflows ? (options.excerptCap ?? options.cap) : options.cap
  let room = Math.max(options.leastRoom ?? 0, limit - taken)
  const cap = taken + room
  let fitting: Cut | undefined
  for (let attempt = 1; ; attempt++) {
    const picked = await select(
      {
        segments,
        steps,
        query,
        ...(similarities !== undefined && { similarities }),
        asksForAnswer: asksForAnswer(conversation.turns),
        room,
        newestRoom,
        owner,
        signal,
      },
      tools,
    )
    const whole: [Segment, readonly Message[]][] = pinned.map((segment) => [segment, segment.messages])
    const selected = { ...picked, selection: new Map([...picked.selection, ...whole]) }
    const cut = await assemble(job, conversation, { options, selected }, tools)
    const unused = cap - cut.tokens
    if (unused >= 0 && (fitting !== undefined || !mayRefill(job, options, unused / cap))) return cut
    if (fitting !== undefined) return fitting
    if (unused >= 0) {
      fitting = cut
      room += Math.floor(unused * REFILLED_PART)
      continue
    }
    // The cap has priority over the notice, but not over a summary: without the summary its content would be lost.
    if (room === 0) return options.notice === undefined ? withoutNotice(job, conversation, cut, tools) : cut
    room = attempt < ATTEMPTS ? Math.max(0, room + unused - NOTICE_ROOM) : 0
  }
}

/** An unused share of the cap below this is not filled again. */
const REFILL_SHARE = 0.005
/** Added messages join fewer neighbors, so a full refill would exceed the cap. */
const REFILLED_PART = 0.95

/** Joined neighbors save message frames, so unused tokens can be filled. A summary is not written twice. */
function mayRefill({ prompt }: TierJob, { notice }: CutOptions, unusedShare: number): boolean {
  return prompt.native.dialect === 'anthropic' && notice === undefined && unusedShare > REFILL_SHARE
}

/** The parts of a conversation that always stay, and the parts to select from. */
interface Layout {
  readonly pinned: readonly Segment[]
  readonly segments: readonly Segment[]
  /** Segments that are steps of a live turn above its limit. */
  readonly steps: ReadonlySet<Segment>
  /** Tokens for excerpts of a newest answer that exceeds the limit of the exchange. */
  readonly newestRoom: number
  /** Tokens of the system prompt, the tools, the pinned segments and the notice. */
  readonly taken: number
  readonly overflows: boolean
}

async function layOut(
  job: TierJob,
  conversation: Conversation,
  options: CutOptions,
  tools: SelectionTools,
): Promise<Layout> {
  const { turns } = conversation
  const frame = await tools.meter.countOf({ ...job.prompt, messages: systemOf(job.prompt) }, job.signal)
  const noticeRoom = options.noticeRoom ?? NOTICE_ROOM
  const liveSize = await countSegments(turns.live, job, tools)
  const liveCap = options.liveCap ?? options.cap
  const overflows = frame + liveSize + noticeRoom > liveCap
  const room = overflows ? 0 : liveCap - frame - liveSize
  const newest = await newestSegments(job, conversation, { options, room }, tools)
  const old = turns.old.slice(0, turns.old.length - newest.length)
  const exchangeRoom = newest.length > 0 ? 0 : Math.min(options.exchangeRoom ?? 0, room)
  const exchange = await lastExchange(job, old, exchangeRoom, tools)
  const left = old.filter((segment) => !exchange.includes(segment))
  const steps = overflows ? turns.live.slice(1) : []
  const pinned = [...exchange, ...newest, ...(overflows ? turns.live.slice(0, 1) : turns.live)]
  const answer = old.at(-1)
  const isTooLong = answer?.kind === 'assistant' && !exchange.includes(answer)
  return {
    pinned,
    segments: [...left, ...steps],
    steps: new Set(steps),
    newestRoom: isTooLong ? exchangeRoom - (await countSegments(exchange, job, tools)) : 0,
    taken: frame + (await countSegments(pinned, job, tools)) + noticeRoom,
    overflows,
  }
}

/** Returns old segments from the newest back: as many as the options request and as fit. */
async function newestSegments(
  job: TierJob,
  { turns }: Conversation,
  { options, room }: { readonly options: CutOptions; readonly room: number },
  tools: SelectionTools,
): Promise<readonly Segment[]> {
  const { newest } = options
  if (newest === undefined) return []
  let messages = turns.live.reduce((sum, segment) => sum + segment.messages.length, 0)
  let tokens = 0
  let from = turns.old.length
  while (from > 0 && (messages < newest.messages || tokens < newest.tokens)) {
    const segment = turns.old[from - 1]
    const size = segment === undefined ? 0 : await countSegments([segment], job, tools)
    if (tokens + size > room) break
    tokens += size
    messages += segment?.messages.length ?? 0
    from--
  }
  return turns.old.slice(from)
}

/**
 * Returns the answer before the live turn and the user message that it answers, if they fit, without the tool calls
 * between them.
 */
async function lastExchange(
  job: TierJob,
  old: readonly Segment[],
  room: number,
  tools: SelectionTools,
): Promise<readonly Segment[]> {
  const answer = old.at(-1)
  const question = old.findLast((segment) => segment.kind === 'user')
  const exchange: Segment[] = []
  let tokens = 0
  for (const segment of new Set([answer, question])) {
    if (segment === undefined || segment.kind === 'exchange') continue
    const size = await countSegments([segment], job, tools)
    if (tokens + size > room) continue
    tokens += size
    exchange.push(segment)
  }
  return exchange
}

async function assemble(
  job: TierJob,
  conversation: Conversation,
  { options, selected }: { readonly options: CutOptions; readonly selected: Selected },
  tools: SelectionTools,
): Promise<Cut> {
  const cut = conversation.segments.filter((segment) => isCut(segment, selected.selection))
  const kept = cut.map((segment) => ({ ...segment, messages: selected.selection.get(segment) ?? [] }))
  const size = (await countSegments(cut, job, tools)) - (await countSegments(kept, job, tools))
  const notice = options.notice === undefined ? noticeOf(size) : await options.notice(cut, size)
  const prompt = rebuild(job.prompt, conversation.turns, selected.selection, { notice })
  return {
    prompt,
    tokens: await tools.meter.countOf(prompt, job.signal),
    kept: conversation.turns.old.filter((segment) => selected.selection.has(segment)).length,
    matches: selected.matches,
    selected,
    notice,
  }
}

async function withoutNotice(job: TierJob, { turns }: Conversation, cut: Cut, tools: SelectionTools): Promise<Cut> {
  const prompt = rebuild(job.prompt, turns, cut.selected.selection, { notice: '' })
  return { ...cut, prompt, notice: '', tokens: await tools.meter.countOf(prompt, job.signal) }
}

function systemOf(prompt: Prompt): readonly Message[] {
  return prompt.messages.filter((message) => message.role === 'system')
}

/** Counts the exact tokens of segments. */
export async function countSegments(
  segments: readonly Segment[],
  job: TierJob,
  tools: SelectionTools,
): Promise<number> {
  const { meter, pause } = tools
  let tokens = 0
  for (const segment of segments) {
    const due = pause()
    if (due !== undefined) await due
    for (const message of segment.messages) tokens += await meter.countOfMessage(message, job.signal)
  }
  return tokens
}

/** States about how much is left out, so that a model does not treat the rest as the whole conversation. */
function noticeOf(tokens: number): string {
  return `[About ${roundTokens(tokens)} tokens of this conversation are left out, here and between the messages below.]`
}
