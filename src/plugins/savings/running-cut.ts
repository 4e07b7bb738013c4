import type { Message, Prompt } from '../../core/prompt.ts'
import { conversationOf, queryOf } from './conversation.ts'
import { type CutOptions, cutToQuery, repeatCut, type RepeatedCut, snapshotOf } from './cut.ts'
import { type Block, type ConversationMemory, rememberLatest, type Snapshot } from './memory.ts'
import { select, type SelectionTools } from './selection.ts'
import { serializeSegment } from './summary.ts'
import type { TierJob } from './tier.ts'
import { usesTools } from './uses-tools.ts'

/**
 * A cut that later turns repeat: a prefix that stays the same from turn to turn, so that the upstream can read it from
 * its cache, and before the live turn a block of the earlier parts that the question needs.
 */
export interface RunningCut {
  readonly prompt: Prompt
  readonly tokens: number
  /** Tokens that the next turn repeats. */
  readonly stableTokens: number
  readonly snapshot: Snapshot
}

export interface RunningCutOptions {
  /** Part of the key under which the cut is stored. */
  readonly kind: string
  /** Above this size in tokens, the prompt is cut again. */
  readonly cap: number
  /** Minimum tokens for the block. If the prefix leaves less, the prompt is cut again. 0 for no block. */
  readonly minBlock: number
  /** @default cap */
  readonly maxBlock?: number
}

const BLOCK_HEADING = '[Earlier parts of this conversation that may matter for the next message:]'
/** With a smaller block, a running chat keeps less than a first request of the same size. See docs/tiers/evidence.md. */
const BLOCK_SHARE = 0.65
/** The prompt of an agent grows after the question, so it has no room for a large block. */
const AGENT_BLOCK_SHARE = 1 / 16
const BLOCK_OVERHEAD_TOKENS = 64
const MIN_BLOCK_TOKENS = 200

/** Returns the share of the prompt that is selected again for a question. 0 on later steps of its live turn. */
export function blockShareFor({ prompt }: TierJob): number {
  if (conversationOf(prompt).turns.live.length !== 1) return 0
  return usesTools(prompt) ? AGENT_BLOCK_SHARE : BLOCK_SHARE
}

export function isBlock(message: Message): boolean {
  const [part] = message.parts
  return message.role === 'user' && part?.type === 'text' && part.text.startsWith(BLOCK_HEADING)
}

/** Returns undefined if the prompt must be cut again. */
export async function continueCut(
  job: TierJob,
  memory: ConversationMemory,
  { snapshot, ...options }: RunningCutOptions & { readonly snapshot: Snapshot },
  tools: SelectionTools,
): Promise<RunningCut | undefined> {
  const { turns } = conversationOf(job.prompt)
  const { block: lastBlock, ...withoutBlock } = snapshot
  const prefix = await repeatCut(job, withoutBlock, tools)
  const isSameQuestion = lastBlock !== undefined && lastBlock.before === turns.live[0]?.indexes[0]
  // On later steps of a live turn, a new block would change the prefix.
  const isNewQuestion = !isSameQuestion && turns.live.length === 1 && options.minBlock > 0
  const room = options.cap - prefix.tokens
  if (room < (isNewQuestion ? options.minBlock : 0)) return undefined
  const capacity = Math.min(options.maxBlock ?? room, room) - BLOCK_OVERHEAD_TOKENS
  const block = isNewQuestion ? await selectBlock(job, capacity, prefix, tools) : isSameQuestion ? lastBlock : undefined
  const extended = block === undefined ? prefix : await repeatCut(job, { ...withoutBlock, block }, tools)
  if (extended.tokens > options.cap && isSameQuestion) return undefined
  const sent = extended.tokens > options.cap ? prefix : extended
  await rememberLatest(memory, job, options.kind, { ...sent.snapshot, at: job.now })
  return { prompt: sent.prompt, tokens: sent.tokens, stableTokens: prefix.tokens, snapshot: sent.snapshot }
}

/** Cuts to `cut.cap` tokens, which leaves room for the block and for later turns. */
export async function beginCut(
  job: TierJob,
  memory: ConversationMemory,
  { cut, ...options }: RunningCutOptions & { readonly cut: CutOptions },
  tools: SelectionTools,
): Promise<RunningCut | undefined> {
  const created = await cutToQuery(job, cut, tools)
  if (created === undefined) return undefined
  const snapshot = snapshotOf(job, created)
  const { prompt, tokens } = created
  const withBlock = options.minBlock > 0 ? await continueCut(job, memory, { ...options, snapshot }, tools) : undefined
  if (withBlock !== undefined) return withBlock
  await rememberLatest(memory, job, options.kind, snapshot)
  return { prompt, tokens, stableTokens: tokens, snapshot }
}

/** Returns the size of the prompt without its block. */
export async function repeatedTokens(job: TierJob, snapshot: Snapshot, tools: SelectionTools): Promise<number> {
  const { block: _, ...withoutBlock } = snapshot
  return (await repeatCut(job, withoutBlock, tools)).tokens
}

async function selectBlock(
  job: TierJob,
  capacity: number,
  { selection }: RepeatedCut,
  tools: SelectionTools,
): Promise<Block | undefined> {
  const conversation = conversationOf(job.prompt)
  const { turns } = conversation
  const before = turns.live[0]?.indexes[0]
  if (capacity < MIN_BLOCK_TOKENS || before === undefined) return undefined
  const { owner, signal } = job
  const result = await select(
    {
      segments: turns.old,
      steps: new Set(),
      sent: new Set(turns.old.filter((segment) => selection.get(segment) === segment.messages)),
      query: queryOf(turns),
      similarities: await job.semantics?.similarities(conversation),
      capacity,
      owner,
      signal,
    },
    tools,
  )
  if (result.matches === 0) return undefined
  const texts = turns.old.flatMap((segment) => {
    const messages = result.selection.get(segment)
    return messages === undefined ? [] : [serializeSegment({ ...segment, messages }, 'full')]
  })
  return texts.length === 0 ? undefined : { before, text: [BLOCK_HEADING, ...texts].join('\n\n') }
}
