import { add, ZERO, type NanoUsd } from '../core/money.ts'
import { cutToQuery } from './cut.ts'
import { sha256 } from '#hash'
import { conversationOf, type Segment } from './conversation.ts'
import type { ConversationMemory } from './memory.ts'
import type { SelectionTools } from './selection.ts'
import { PROMPT_VERSION, summarize, type Summarizer, type Summary, summaryNotice, serializeSegment } from './summary.ts'
import {
  DEFAULT_THRESHOLDS,
  isWanted,
  type Thresholds,
  type Tier,
  type TierForecast,
  type TierJob,
  type TierResult,
} from './tier.ts'
import type { Pause } from '../core/async.ts'
import { controllerOf } from './small-model.ts'

interface RecursiveOptions {
  readonly thresholds?: Thresholds
  /** @default 'model' */
  readonly summarizer?: Summarizer
  /** Tokens of the whole prompt; less where that is more than 45 % of the conversation. @default 20_480 */
  readonly target?: number
}

const TARGET = 20_480
/** Maximum target as a share of the conversation, so that a conversation near the target is shortened too. */
const MAX_SHARE = 0.45
/** A chunk of 10k tokens together with the prompt around it. */
const CHUNK = 9200
const CHUNK_SUMMARY = 800
/** Summaries take at most this share of the target; above it they are summarized again. */
const SUMMARY_SHARE = 0.25
const DEEPEST = 5
/** A level that shrinks the text by less than this share is the last. */
const MIN_SHRINKING = 0.2
const AT_ONCE = 4
const MAX_CALLS = 64
const LIVE_CAP = 32_768
const NOTICE_FRAME = 80

interface Level {
  readonly texts: readonly string[]
  readonly spent: NanoUsd
}

/** Tier 3: all old text in chunks, summarized side by side, again and again until the summaries fit the target. */
export function createRecursive(
  tools: SelectionTools,
  memory: ConversationMemory,
  options: RecursiveOptions = {},
): Tier {
  const thresholds = options.thresholds ?? DEFAULT_THRESHOLDS
  const summarizer = options.summarizer ?? 'model'
  const targetFor = (job: TierJob): number => Math.min(options.target ?? TARGET, Math.round(job.tokens * MAX_SHARE))
  const { estimate } = tools.meter.tokenizer

  const controllerFor = (job: TierJob): string => (summarizer === 'extractive' ? 'extractive' : controllerOf(job.small))

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const conversation = conversationOf(job.prompt)
    const { full, rest } = await chunkSegments(conversation.turns.old, { size: CHUNK, most: MAX_CALLS }, tools)
    const chunks = full.map((chunk) => chunk.text)
    if (chunks.length === 0) return { declined: 'there is less than one chunk of older messages', spent: ZERO }
    if (chunks.length > MAX_CALLS) return { declined: `there are more than ${MAX_CALLS} chunks`, spent: ZERO }
    const target = targetFor(job)
    const room = Math.round(target * SUMMARY_SHARE)
    const { texts, spent } = await condense(job, chunks, room)
    const joined = texts.join('\n\n')
    const notice = async (_: readonly Segment[], size: number): Promise<string> => summaryNotice(joined, size)
    const noticeRoom = (await tools.meter.tokenizer.count(joined, job.signal)) + NOTICE_FRAME
    const cap = Math.max(target, noticeRoom + target / 2)
    const unread = [...rest, ...conversation.turns.live].reduce((sum, segment) => sum + segment.messages.length, 0)
    const newest = { messages: unread, tokens: 0 }
    const cut = await cutToQuery(job, conversation, { cap, liveCap: LIVE_CAP, noticeRoom, notice, newest }, tools)
    if (cut === undefined) return { declined: 'there is nothing that could be left out', spent }
    const strategy = `Recursive-RLM (controller: ${controllerFor(job)})`
    return { rewrite: { prompt: cut.prompt, tokens: cut.tokens, tier: 3, strategy }, spent }
  }

  /** Summarizes the texts, and then the summaries, until they fit or a level no longer shrinks them. */
  const condense = async (job: TierJob, chunks: readonly string[], room: number): Promise<Level> => {
    let texts = chunks
    let spent: NanoUsd = ZERO
    for (let depth = 1; depth <= DEEPEST; depth++) {
      const level = await summarizeAll(job, texts)
      spent = add(spent, level.spent)
      const before = await sizeOf(texts)
      const after = await sizeOf(level.texts)
      texts = level.texts
      if (after <= room || texts.length === 1 || after > before * (1 - MIN_SHRINKING)) break
      texts = await joinUp(texts)
    }
    return { texts, spent }
  }

  const sizeOf = async (texts: readonly string[]): Promise<number> => {
    let sum = 0
    for (const text of texts) {
      sum += estimate(text)
      await tools.pause()
    }
    return sum
  }

  /** Joins neighboring summaries to the chunks of the next level, from the oldest end. */
  const joinUp = async (texts: readonly string[]): Promise<readonly string[]> => {
    const joined: string[] = []
    let held: string[] = []
    let size = 0
    for (const text of texts) {
      const added = await sizeOf([text])
      if (held.length > 0 && size + added > CHUNK) {
        joined.push(held.join('\n\n'))
        held = []
        size = 0
      }
      held.push(text)
      size += added
    }
    return [...joined, held.join('\n\n')]
  }

  const summarizeAll = async (job: TierJob, texts: readonly string[]): Promise<Level> => {
    const summaries: string[] = Array.from({ length: texts.length }, () => '')
    let spent: NanoUsd = ZERO
    let next = 0
    const work = async (): Promise<void> => {
      for (let at = next++; at < texts.length; at = next++) {
        const one = await summarizeOne(job, texts[at] ?? '')
        summaries[at] = one.text
        spent = add(spent, one.spent)
        await tools.pause()
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, work))
    return { texts: summaries, spent }
  }

  /** Returns a remembered summary, by the model or else extractive. A new summary is remembered under its author. */
  const summarizeOne = async (job: TierJob, text: string): Promise<Pick<Summary, 'text' | 'spent'>> => {
    const { owner, small, signal } = job
    const hash = sha256(text)
    const keyOf = (writer: string): string => `chunk:${PROMPT_VERSION}:${writer}:${hash}`
    const writers = new Set([summarizer === 'extractive' ? undefined : small?.name, controllerFor(job)])
    for (const writer of writers) {
      const known = writer === undefined ? undefined : await memory.recall(owner, keyOf(writer))
      if (known !== undefined) return { text: known, spent: ZERO }
    }
    const summary = await summarize({ text, maxTokens: CHUNK_SUMMARY, small, summarizer, tools, signal })
    const isByModel = summary.written && summarizer === 'model' && small !== undefined
    await memory.remember(owner, keyOf(isByModel ? small.name : 'extractive'), summary.text)
    return summary
  }

  const forecast = (job: TierJob): TierForecast => {
    const calls = Math.ceil(job.tokens / CHUNK) * CHUNK_SUMMARY
    const price = summarizer === 'extractive' ? ZERO : (job.small?.price(job.tokens, calls) ?? ZERO)
    const callsPerTurn = summarizer === 'extractive' ? ZERO : (job.small?.price(CHUNK, CHUNK_SUMMARY) ?? ZERO)
    return { tokens: targetFor(job), calls: price, callsPerTurn }
  }

  return { tier: 3, wants: (job) => isWanted(job, 3, thresholds), forecast, rewrite }
}

/** A part of the conversation that is summarized by itself. */
interface Chunk {
  readonly text: string
  /** The segments whose end it contains. */
  readonly segments: readonly Segment[]
}

interface Chunks {
  /**
   * Chunks from the oldest end, so that they are the same on the next turn. Together they contain all old text once.
   */
  readonly full: readonly Chunk[]
  /** Segments that do not fill a chunk yet. They stay unchanged. */
  readonly rest: readonly Segment[]
}

interface ChunkLimits {
  /** Maximum size of a chunk in tokens. */
  readonly size: number
  /** Maximum number of chunks. Reading stops after one more. @default unlimited */
  readonly most?: number
}

/** Divides segments into chunks, at the borders of segments, or at lines when a segment is longer than a chunk. */
export async function chunkSegments(
  segments: readonly Segment[],
  { size, most = Number.POSITIVE_INFINITY }: ChunkLimits,
  { meter, pause }: Pick<SelectionTools, 'meter' | 'pause'>,
): Promise<Chunks> {
  const { estimate } = meter.tokenizer
  const full: Chunk[] = []
  let texts: string[] = []
  let held: Segment[] = []
  let tokens = 0
  const close = (): void => {
    if (texts.length > 0) full.push({ text: texts.join('\n'), segments: held })
    texts = []
    held = []
    tokens = 0
  }
  for (const segment of segments) {
    if (full.length > most) break
    const pieces = await piecesOf(serializeSegment(segment, 'whole'), size, { estimate, pause })
    for (const [at, piece] of pieces.entries()) {
      await pause()
      const length = estimate(piece) + 1
      if (tokens + length > size) close()
      texts.push(piece)
      tokens += length
      if (at === pieces.length - 1) held.push(segment)
    }
  }
  return { full, rest: held }
}

/** An estimate is at least an eighth of the bytes, so a text longer than this many times the size needs no estimate. */
const SURELY_LONGER = 8

async function piecesOf(
  text: string,
  size: number,
  { estimate, pause }: { readonly estimate: (text: string) => number; readonly pause: Pause },
): Promise<string[]> {
  if (text.length < size * SURELY_LONGER && estimate(text) < size) return [text]
  const pieces: string[] = []
  let held: string[] = []
  let tokens = 0
  for (const line of text.split(/(?<=\n)/).flatMap((one) => shortLines(one, size))) {
    const due = pause()
    if (due !== undefined) await due
    const length = estimate(line) + 1
    if (tokens + length > size && held.length > 0) {
      pieces.push(held.join(''))
      held = []
      tokens = 0
    }
    held.push(line)
    tokens += length
  }
  if (held.length > 0) pieces.push(held.join(''))
  return pieces
}

/** A line has at most as many tokens as bytes, so a quarter of the size in characters always fits. */
function shortLines(line: string, size: number): string[] {
  const longest = Math.max(1, Math.floor(size / 4))
  if (line.length <= longest) return [line]
  const pieces: string[] = []
  for (let at = 0; at < line.length;) {
    const end = at + longest
    const cut = line.charCodeAt(end)
    const whole = cut >= 0xdc00 && cut < 0xe000 ? end - 1 : end
    pieces.push(line.slice(at, whole))
    at = whole
  }
  return pieces
}
