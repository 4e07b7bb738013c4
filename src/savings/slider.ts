import { ZERO } from '../core/money.ts'
import { cutToQuery } from './cut.ts'
import { type ConversationMemory, conversationOf, recallLatest, rememberLatest } from './conversation.ts'
import {
  type Block,
  recallSnapshot,
  rebuildPrompt,
  rememberCut,
  restoreSelection,
  type Selection,
  type Snapshot,
} from './excerpt.ts'
import { select, type SelectionTools } from './selection.ts'
import { LEVEL_CAPS, type Rewrite, type Tier, type TierJob, type TierResult } from './tier.ts'
import { queryOf } from './query.ts'
import { serializeSegment } from './summary.ts'
import { UPSTREAM_CACHE_MS } from './upstream-cache.ts'

/**
 * The mode of the slider.
 *
 * - `query`: selects the parts again on each turn, by their relevance to the question. Best recall.
 * - `stable`: cuts to half of the cap, and repeats the cut until the prompt reaches the cap, so that the upstream can
 *   read the prompt prefix from its cache.
 * - `auto`: `query` until a turn follows another within five minutes, and `stable` from then on. The parts that a new
 *   question needs are then inserted before it.
 */
export type SliderMode = 'auto' | 'query' | 'stable'

const STABLE_SHARE = 0.5
const BLOCK_SHARE = 1 / 16
const BLOCK_OVERHEAD_TOKENS = 64
/** The last question and answer before the live turn stay unchanged up to this fraction of the cap. */
const EXCHANGE_SHARE = 0.25

type ShortenedPrompt = Pick<Rewrite, 'prompt' | 'tokens'>

/** Tier 5: reduces the prompt to the cap of the savings level, keeping the parts that are relevant to the question. */
export function createSlider(tools: SelectionTools, memory: ConversationMemory, mode: SliderMode): Tier {
  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const { level } = job.steering
    if (level === undefined || level === 'off') return { declined: 'no savings level is set', spent: ZERO }
    const cap = LEVEL_CAPS[level]
    const size = await tools.meter.countNearThresholds(job.prompt, [cap], job.signal)
    const tokens = size <= cap ? size : await tools.meter.countPrompt(job.prompt, job.signal)
    if (tokens <= cap) return { declined: `the prompt is within ${cap} tokens`, spent: ZERO }
    const shortened = (await repeatCut(job, cap)) ?? (await createCut(job, cap))
    if (shortened === undefined) return { declined: 'no message can be left out', spent: ZERO }
    const { prompt, tokens: sentTokens } = shortened
    const strategy = `Savings-Slider (${level}: ${cap} tokens)`
    return { rewrite: { prompt, tokens: sentTokens, tier: 5, strategy }, spent: ZERO }
  }

  /** Returns undefined if there is no cut to repeat or the prompt would exceed the cap. */
  const repeatCut = async (job: TierJob, cap: number): Promise<ShortenedPrompt | undefined> => {
    const lastSnapshot = mode === 'query' ? undefined : await recallSnapshot(memory, job, `slider-${cap}`)
    if (lastSnapshot === undefined) return undefined
    const conversation = conversationOf(job.prompt)
    const selection = await restoreSelection(conversation, lastSnapshot, (segment) => tools.analyze(segment, job.owner))
    const apply = async (snapshot: Snapshot): Promise<ShortenedPrompt & { readonly snapshot: Snapshot }> => {
      const prompt = rebuildPrompt(conversation, selection, snapshot)
      return { prompt, tokens: await tools.meter.countPrompt(prompt, job.signal), snapshot }
    }
    let repeated = await apply(lastSnapshot)
    if (repeated.tokens > cap) return undefined
    if (mode === 'auto') {
      const { blocks } = lastSnapshot
      const capacity = Math.min(cap * BLOCK_SHARE, cap - repeated.tokens - BLOCK_OVERHEAD_TOKENS)
      const block = await selectBlock(job, { capacity, selection, blocks }, tools)
      const extended = block === undefined ? repeated : await apply({ ...lastSnapshot, blocks: [...blocks, block] })
      if (extended.tokens <= cap) repeated = extended
    }
    await rememberLatest(memory, job, `slider-${cap}`, JSON.stringify(repeated.snapshot))
    return repeated
  }

  const createCut = async (job: TierJob, cap: number): Promise<ShortenedPrompt | undefined> => {
    const isStable = mode === 'stable' || (mode === 'auto' && (await isContinued(job, cap)))
    const target = isStable ? cap * STABLE_SHARE : cap
    const options = { cap: target, liveCap: cap, exchangeTokens: cap * EXCHANGE_SHARE, usesEmbeddings: true }
    const cut = await cutToQuery(job, options, tools)
    if (cut === undefined) return undefined
    if (isStable) await rememberCut(memory, job, `slider-${cap}`, cut)
    else if (mode === 'auto') await rememberLatest(memory, job, `slider-${cap}-seen`, String(job.now))
    return cut
  }

  /**
   * Returns true if a cut of this conversation is stored, or if an earlier turn was cut less than five minutes ago. A
   * repeated request is not an earlier turn.
   */
  const isContinued = async (job: TierJob, cap: number): Promise<boolean> => {
    const lastTurnAt = Number(await recallLatest(memory, job, `slider-${cap}-seen`, 1))
    const snapshot = await recallLatest(memory, job, `slider-${cap}`)
    return snapshot !== undefined || (lastTurnAt > 0 && job.now - lastTurnAt < UPSTREAM_CACHE_MS)
  }

  return {
    tier: 5,
    wants: ({ steering }) => steering.level !== undefined && steering.level !== 'off',
    rewrite,
  }
}

const HEADING = '[Earlier parts of this conversation that may matter for the next message:]'
const MIN_BLOCK_TOKENS = 200

/**
 * Selects the parts that a new question needs and the repeated cut omits. Returns undefined if there are none, and
 * during an agent's steps.
 */
async function selectBlock(
  job: TierJob,
  {
    capacity,
    selection,
    blocks,
  }: { readonly capacity: number; readonly selection: Selection; readonly blocks: readonly Block[] },
  tools: SelectionTools,
): Promise<Block | undefined> {
  const conversation = conversationOf(job.prompt)
  const { turns } = conversation
  const before = turns.live[0]?.indexes[0]
  if (capacity < MIN_BLOCK_TOKENS || turns.live.length !== 1 || before === undefined) return undefined
  if (blocks.some((block) => block.before === before)) return undefined
  const segments = turns.old.filter((segment) => selection.get(segment) !== segment.messages)
  const similarities = await job.semantics?.similarities(conversation)
  const { owner, signal } = job
  const query = queryOf(turns)
  const result = await select({ segments, steps: new Set(), query, similarities, capacity, owner, signal }, tools)
  if (result.matches === 0) return undefined
  const texts = segments.flatMap((segment) => {
    const messages = result.selection.get(segment)
    return messages === undefined ? [] : [serializeSegment({ ...segment, messages }, 'full')]
  })
  return texts.length === 0 ? undefined : { before, text: [HEADING, ...texts].join('\n\n') }
}
