import type { Message, Prompt } from '../core/prompt.ts'
import { formatTokens } from './summary.ts'
import { type Conversation, conversationOf, type Segment } from './conversation.ts'
import { asksForAnswer, queryOf } from './query.ts'
import { isCut, rebuildPrompt, type SelectionResult } from './excerpt.ts'
import { select, type SelectionTools } from './selection.ts'
import type { TierJob } from './tier.ts'

/** A prompt reduced to the system prompt, the live turn and a selection of old segments. */
export interface Cut {
  readonly prompt: Prompt
  readonly tokens: number
  /** Number of old segments that are sent, including excerpts. */
  readonly sentCount: number
  readonly result: SelectionResult
  readonly notice: string
}

export interface CutOptions {
  readonly cap: number
  /**
   * Maximum size of a prompt whose live turn is unchanged, in tokens. Above it, tool results are excerpted. @default
   * cap
   */
  readonly liveCap?: number
  /** Maximum size of a prompt whose live turn is excerpted, in tokens. @default cap */
  readonly excerptCap?: number
  /** Minimum number of tokens for old segments, even if the live turn fills the cap. @default 0 */
  readonly minOldTokens?: number
  /**
   * Newest messages to keep unchanged: at least `messages` messages including the live turn, and at least `tokens`
   * tokens excluding the live turn.
   */
  readonly minNewest?: { readonly messages: number; readonly tokens: number }
  /** The last question and answer before the live turn stay unchanged up to this size, in tokens. @default 0 */
  readonly exchangeTokens?: number
  /** Also ranks segments by the similarity of their embeddings to the question. @default false */
  readonly usesEmbeddings?: boolean
  readonly searchTerms?: readonly string[]
  /** Tokens reserved for the notice. @default 48 */
  readonly noticeTokens?: number
  /** Returns the text that replaces the cut segments. @default a notice with their number of tokens */
  readonly createNotice?: (cut: readonly Segment[], tokens: number) => Promise<string>
}

interface CutContext {
  readonly job: TierJob
  readonly conversation: Conversation
  readonly options: CutOptions
  readonly tools: SelectionTools
}

const NOTICE_TOKENS = 48
const MAX_ATTEMPTS = 6

/**
 * Reduces a prompt to the cap. Selects again with another capacity if the result exceeds the cap or leaves too much of
 * it unused. Returns undefined if no segment can be cut.
 */
export async function cutToQuery(job: TierJob, options: CutOptions, tools: SelectionTools): Promise<Cut | undefined> {
  const conversation = conversationOf(job.prompt)
  const { turns } = conversation
  const context = { job, conversation, options, tools }
  const { pinned, candidates, steps, lastAnswerCapacity, fixedTokens, isLiveTooLong } = await planLayout(context)
  if (candidates.length === 0) return undefined
  const { owner, signal } = job
  const similarities = options.usesEmbeddings === true ? await job.semantics?.similarities(conversation) : undefined
  const selection = {
    segments: candidates,
    steps,
    query: queryOf(turns, options.searchTerms),
    similarities,
    asksForAnswer: asksForAnswer(turns),
    lastAnswerCapacity,
    owner,
    signal,
  }
  const limit = isLiveTooLong ? (options.excerptCap ?? options.cap) : options.cap
  let capacity = Math.max(options.minOldTokens ?? 0, limit - fixedTokens)
  const cap = fixedTokens + capacity
  let fitting: Cut | undefined
  for (let attempt = 1; ; attempt++) {
    const selected = await select({ ...selection, capacity }, tools)
    const unchanged: [Segment, readonly Message[]][] = pinned.map((segment) => [segment, segment.messages])
    const cut = await assemble(context, { ...selected, selection: new Map([...selected.selection, ...unchanged]) })
    const unused = cap - cut.tokens
    if (unused >= 0 && (fitting !== undefined || !mayRefill(context, unused / cap))) return cut
    if (fitting !== undefined) return fitting
    if (unused >= 0) {
      fitting = cut
      capacity += Math.floor(unused * REFILLED_SHARE)
      continue
    }
    // The cap takes priority over a notice, but not over a summary, which contains the content of the cut segments.
    if (capacity === 0) return options.createNotice === undefined ? removeNotice(context, cut) : cut
    capacity = attempt < MAX_ATTEMPTS ? Math.max(0, capacity + unused - NOTICE_TOKENS) : 0
  }
}

const MIN_REFILL_SHARE = 0.005
/**
 * Fraction of the unused tokens that a refill uses. A full refill may not fit, because added messages can separate
 * joined messages.
 */
const REFILLED_SHARE = 0.95

/**
 * Joining messages saves their overhead, which leaves tokens unused. A cut with a summary is never refilled, because the
 * summary would be paid for twice.
 */
function mayRefill({ job, options }: CutContext, unusedShare: number): boolean {
  return (
    job.prompt.native.dialect === 'anthropic' && options.createNotice === undefined && unusedShare > MIN_REFILL_SHARE
  )
}

interface Layout {
  /** Segments that are sent unchanged. */
  readonly pinned: readonly Segment[]
  readonly candidates: readonly Segment[]
  /** The candidates that are steps of the live turn. Empty unless the live turn exceeds its cap. */
  readonly steps: ReadonlySet<Segment>
  /** Tokens for excerpts from the last answer, if it is too long to stay unchanged. */
  readonly lastAnswerCapacity: number
  readonly fixedTokens: number
  readonly isLiveTooLong: boolean
}

async function planLayout(context: CutContext): Promise<Layout> {
  const { job, conversation, options, tools } = context
  const { system, turns } = conversation
  const baseTokens = await tools.meter.countPrompt({ ...job.prompt, messages: system }, job.signal)
  const noticeTokens = options.noticeTokens ?? NOTICE_TOKENS
  const liveSize = await countSegments(context, turns.live)
  const liveCap = options.liveCap ?? options.cap
  const isLiveTooLong = baseTokens + liveSize + noticeTokens > liveCap
  const maxTokens = isLiveTooLong ? 0 : liveCap - baseTokens - liveSize
  const newest = await newestSegments(context, maxTokens)
  const old = turns.old.slice(0, turns.old.length - newest.length)
  const exchangeTokens = newest.length > 0 ? 0 : Math.min(options.exchangeTokens ?? 0, maxTokens)
  const exchange = await lastExchange(context, old, exchangeTokens)
  const steps = isLiveTooLong ? turns.live.slice(1) : []
  const pinned = [...exchange, ...newest, ...(isLiveTooLong ? turns.live.slice(0, 1) : turns.live)]
  const answer = old.at(-1)
  const isAnswerTooLong = answer?.kind === 'assistant' && !exchange.includes(answer)
  return {
    pinned,
    candidates: [...old.filter((segment) => !exchange.includes(segment)), ...steps],
    steps: new Set(steps),
    lastAnswerCapacity: isAnswerTooLong ? exchangeTokens - (await countSegments(context, exchange)) : 0,
    fixedTokens: baseTokens + (await countSegments(context, pinned)) + noticeTokens,
    isLiveTooLong,
  }
}

/** Returns the newest segments that stay unchanged. Stops at the first segment that does not fit. */
async function newestSegments(context: CutContext, maxTokens: number): Promise<readonly Segment[]> {
  const { turns } = context.conversation
  const { minNewest } = context.options
  if (minNewest === undefined) return []
  const newest: Segment[] = []
  let messageCount = turns.live.flatMap((segment) => segment.messages).length
  let tokens = 0
  for (const segment of turns.old.toReversed()) {
    if (messageCount >= minNewest.messages && tokens >= minNewest.tokens) break
    const size = await countSegments(context, [segment])
    if (tokens + size > maxTokens) break
    tokens += size
    messageCount += segment.messages.length
    newest.unshift(segment)
  }
  return newest
}

/** Returns the last answer before the live turn and its question, without the tool calls between them, if they fit. */
async function lastExchange(
  context: CutContext,
  old: readonly Segment[],
  maxTokens: number,
): Promise<readonly Segment[]> {
  const question = old.findLast((segment) => segment.kind === 'user')
  const exchange: Segment[] = []
  let tokens = 0
  for (const segment of new Set([old.at(-1), question])) {
    if (segment === undefined || segment.kind === 'tool-use') continue
    const size = await countSegments(context, [segment])
    if (tokens + size > maxTokens) continue
    tokens += size
    exchange.push(segment)
  }
  return exchange
}

async function assemble(context: CutContext, result: SelectionResult): Promise<Cut> {
  const { job, conversation, options, tools } = context
  const { selection } = result
  const cut = conversation.segments.filter((segment) => isCut(segment, selection))
  const excerpts = cut.map((segment) => ({ ...segment, messages: selection.get(segment) ?? [] }))
  const removedTokens = (await countSegments(context, cut)) - (await countSegments(context, excerpts))
  const notice =
    options.createNotice === undefined ? noticeOf(removedTokens) : await options.createNotice(cut, removedTokens)
  const prompt = rebuildPrompt(conversation, selection, { notice })
  const tokens = await tools.meter.countPrompt(prompt, job.signal)
  const sentCount = conversation.turns.old.filter((segment) => selection.has(segment)).length
  return { prompt, tokens, sentCount, result, notice }
}

async function removeNotice({ job, conversation, tools }: CutContext, cut: Cut): Promise<Cut> {
  const prompt = rebuildPrompt(conversation, cut.result.selection, { notice: '' })
  return { ...cut, prompt, notice: '', tokens: await tools.meter.countPrompt(prompt, job.signal) }
}

async function countSegments({ job, tools }: CutContext, segments: readonly Segment[]): Promise<number> {
  const { meter, pause } = tools
  let tokens = 0
  for (const segment of segments) {
    await pause()
    for (const message of segment.messages) tokens += await meter.countMessage(message, job.signal)
  }
  return tokens
}

function noticeOf(tokens: number): string {
  return `[About ${formatTokens(tokens)} tokens of this conversation are left out, here and between the messages below.]`
}
