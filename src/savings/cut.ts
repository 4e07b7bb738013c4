import type { Message, Prompt } from '../core/prompt.ts'
import { roundTokens } from './summary.ts'
import type { Conversation, Segment } from './conversation.ts'
import { asksForAnswer, queryOf } from './query.ts'
import { isCut, rebuild, type Selected } from './excerpt.ts'
import { select, type SelectionTools } from './selection.ts'
import type { TierJob } from './tier.ts'

/** A prompt reduced to the system prompt, the live turn and a selection of old segments. */
export interface Cut {
  readonly prompt: Prompt
  readonly tokens: number
  /** Selected old segments, including excerpts. */
  readonly selectedCount: number
  readonly matches: number
  readonly selected: Selected
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
  /** Tokens for old segments even if the live turn fills the cap. @default 0 */
  readonly minOldTokens?: number
  /**
   * Newest messages to keep unchanged: at least this many, including the live turn, and at least this many tokens,
   * excluding it.
   */
  readonly newest?: { readonly messages: number; readonly tokens: number }
  /** Maximum size of the last exchange before the live turn that stays unchanged, in tokens. @default 0 */
  readonly exchangeTokens?: number
  /** Also ranks segments by the configured embedder. @default false */
  readonly byMeaning?: boolean
  readonly terms?: readonly string[]
  /** Tokens reserved for the notice. @default 48 */
  readonly noticeTokens?: number
  /** Returns the text that replaces the cut segments. @default a notice with their number of tokens */
  readonly notice?: (cut: readonly Segment[], tokens: number) => Promise<string>
}

const NOTICE_TOKENS = 48
const MAX_ATTEMPTS = 6

/**
 * Reduces a prompt to the cap. Selects again with another capacity if the result exceeds the cap or leaves too much of
 * it unused. Returns undefined if no segment can be cut.
 */
export async function cutToQuery(
  job: TierJob,
  conversation: Conversation,
  options: CutOptions,
  tools: SelectionTools,
): Promise<Cut | undefined> {
  const { pinned, segments, steps, newestCapacity, fixedTokens, overflows } = await planLayout(
    job,
    conversation,
    options,
    tools,
  )
  if (segments.length === 0) return undefined
  const query = queryOf(conversation.turns, options.terms)
  const { owner, signal } = job
  const similarities = options.byMeaning === true ? await job.semantics?.similarities(conversation) : undefined
  const selection = {
    segments,
    steps,
    query,
    ...(similarities !== undefined && { similarities }),
    asksForAnswer: asksForAnswer(conversation.turns),
    newestCapacity,
    owner,
    signal,
  }
  const limit = overflows ? (options.excerptCap ?? options.cap) : options.cap
  let capacity = Math.max(options.minOldTokens ?? 0, limit - fixedTokens)
  const cap = fixedTokens + capacity
  let fitting: Cut | undefined
  for (let attempt = 1; ; attempt++) {
    const picked = await select({ ...selection, capacity }, tools)
    const unchanged: [Segment, readonly Message[]][] = pinned.map((segment) => [segment, segment.messages])
    const selected = { ...picked, selection: new Map([...picked.selection, ...unchanged]) }
    const cut = await assemble(job, conversation, { options, selected }, tools)
    const unused = cap - cut.tokens
    if (unused >= 0 && (fitting !== undefined || !mayRefill(job, options, unused / cap))) return cut
    if (fitting !== undefined) return fitting
    if (unused >= 0) {
      fitting = cut
      capacity += Math.floor(unused * REFILLED_SHARE)
      continue
    }
    // The cap takes priority over a notice, but not over a summary, which contains the content of the cut segments.
    if (capacity === 0) return options.notice === undefined ? withoutNotice(job, conversation, cut, tools) : cut
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
 * Joined messages have fewer frames, which leaves tokens unused. A cut with a summary is never refilled, because the
 * summary would be paid for twice.
 */
function mayRefill({ prompt }: TierJob, { notice }: CutOptions, unusedShare: number): boolean {
  return prompt.native.dialect === 'anthropic' && notice === undefined && unusedShare > MIN_REFILL_SHARE
}

interface Layout {
  readonly pinned: readonly Segment[]
  readonly segments: readonly Segment[]
  /** The steps of a live turn that exceeds its cap. */
  readonly steps: ReadonlySet<Segment>
  /** Tokens for excerpts from a last answer that is too long to stay unchanged. */
  readonly newestCapacity: number
  readonly fixedTokens: number
  readonly overflows: boolean
}

async function planLayout(
  job: TierJob,
  conversation: Conversation,
  options: CutOptions,
  tools: SelectionTools,
): Promise<Layout> {
  const { turns } = conversation
  const frame = await tools.meter.countOf({ ...job.prompt, messages: systemOf(job.prompt) }, job.signal)
  const noticeTokens = options.noticeTokens ?? NOTICE_TOKENS
  const liveSize = await countSegments(turns.live, job, tools)
  const liveCap = options.liveCap ?? options.cap
  const overflows = frame + liveSize + noticeTokens > liveCap
  const maxTokens = overflows ? 0 : liveCap - frame - liveSize
  const newest = await newestSegments(job, conversation, { options, maxTokens }, tools)
  const old = turns.old.slice(0, turns.old.length - newest.length)
  const exchangeTokens = newest.length > 0 ? 0 : Math.min(options.exchangeTokens ?? 0, maxTokens)
  const exchange = await lastExchange(job, old, exchangeTokens, tools)
  const candidates = old.filter((segment) => !exchange.includes(segment))
  const steps = overflows ? turns.live.slice(1) : []
  const pinned = [...exchange, ...newest, ...(overflows ? turns.live.slice(0, 1) : turns.live)]
  const answer = old.at(-1)
  const isTooLong = answer?.kind === 'assistant' && !exchange.includes(answer)
  return {
    pinned,
    segments: [...candidates, ...steps],
    steps: new Set(steps),
    newestCapacity: isTooLong ? exchangeTokens - (await countSegments(exchange, job, tools)) : 0,
    fixedTokens: frame + (await countSegments(pinned, job, tools)) + noticeTokens,
    overflows,
  }
}

/** Stops at the first segment that does not fit. */
async function newestSegments(
  job: TierJob,
  { turns }: Conversation,
  { options, maxTokens }: { readonly options: CutOptions; readonly maxTokens: number },
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
    if (tokens + size > maxTokens) break
    tokens += size
    messages += segment?.messages.length ?? 0
    from--
  }
  return turns.old.slice(from)
}

/** Returns the last answer before the live turn and its question, without the tool calls between them, if they fit. */
async function lastExchange(
  job: TierJob,
  old: readonly Segment[],
  maxTokens: number,
  tools: SelectionTools,
): Promise<readonly Segment[]> {
  const answer = old.at(-1)
  const question = old.findLast((segment) => segment.kind === 'user')
  const exchange: Segment[] = []
  let tokens = 0
  for (const segment of new Set([answer, question])) {
    if (segment === undefined || segment.kind === 'exchange') continue
    const size = await countSegments([segment], job, tools)
    if (tokens + size > maxTokens) continue
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
  const excerpts = cut.map((segment) => ({ ...segment, messages: selected.selection.get(segment) ?? [] }))
  const size = (await countSegments(cut, job, tools)) - (await countSegments(excerpts, job, tools))
  const notice = options.notice === undefined ? noticeOf(size) : await options.notice(cut, size)
  const prompt = rebuild(job.prompt, conversation.turns, selected.selection, { notice })
  return {
    prompt,
    tokens: await tools.meter.countOf(prompt, job.signal),
    selectedCount: conversation.turns.old.filter((segment) => selected.selection.has(segment)).length,
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

async function countSegments(segments: readonly Segment[], job: TierJob, tools: SelectionTools): Promise<number> {
  const { meter, pause } = tools
  let tokens = 0
  for (const segment of segments) {
    const due = pause()
    if (due !== undefined) await due
    for (const message of segment.messages) tokens += await meter.countOfMessage(message, job.signal)
  }
  return tokens
}

function noticeOf(tokens: number): string {
  return `[About ${roundTokens(tokens)} tokens of this conversation are left out, here and between the messages below.]`
}
