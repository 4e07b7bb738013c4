import { ZERO } from '../core/money.ts'
import { cutToQuery } from './cut.ts'
import { type Conversation, conversationOf } from './conversation.ts'
import { type ConversationMemory, recallAt, recallEarlier, rememberAt } from './memory.ts'
import { type Block, rebuild, type Selection } from './excerpt.ts'
import { parseSnapshot, restore, type Snapshot, snapshotOf } from './snapshot.ts'
import { select, type SelectionTools } from './selection.ts'
import { LEVEL_CAPS, type Tier, type TierJob, type TierResult } from './tier.ts'
import { queryOf } from './query.ts'
import { serializeSegment } from './summary.ts'

/**
 * Mode of the slider.
 *
 * - `query`: on every turn a new choice by the question; the best recall.
 * - `stable`: down to half of the cap, then the same choice on every turn until the cap is reached again; the
 *   upstream's own cache goes on knowing the beginning.
 * - `auto`: `query` for a conversation that is new here; for one whose last turn was here within five minutes `stable`,
 *   and before each new question a little of what it needs and the frozen choice left out.
 */
export type SliderMode = 'auto' | 'query' | 'stable'

interface SliderOptions {
  /** @default 'auto' */
  readonly mode?: SliderMode
}

/** Time for which upstreams cache a prompt. */
const UPSTREAM_CACHE_MS = 5 * 60 * 1000
const STABLE_SHARE = 0.5
/** Share of the cap for parts that a new question looks up. */
const BLOCK_SHARE = 1 / 16
const BLOCK_FRAME = 64
/** Share of the cap for the exchange before the last user message. */
const EXCHANGE_SHARE = 0.25

/** Tier 5: keeps the head, the tail, and what the query needs most of the middle, within the level's cap. */
export function createSlider(tools: SelectionTools, memory: ConversationMemory, options: SliderOptions = {}): Tier {
  const mode = options.mode ?? 'auto'

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const { level } = job.steering
    if (level === undefined || level === 'off') return decline('no level was asked for')
    const cap = LEVEL_CAPS[level]
    const least = await tools.meter.sizeNear(job.prompt, [cap], job.signal)
    const total = least <= cap ? least : await tools.meter.countOf(job.prompt, job.signal)
    if (total <= cap) return decline(`the prompt is within ${cap} tokens`)
    const conversation = conversationOf(job.prompt)
    const cut = (await restored(job, conversation, cap)) ?? (await fresh(job, conversation, cap))
    if (cut === undefined) return decline('there is nothing that could be left out')
    return { rewrite: { ...cut, tier: 5, strategy: `Savings-Slider (${level}: ${cap} tokens)` }, spent: ZERO }
  }

  const restored = async (job: TierJob, conversation: Conversation, cap: number): Promise<Shortened | undefined> => {
    if (mode === 'query') return undefined
    const known = parseSnapshot(await recallAt(memory, job.owner, conversation, `slider-${cap}`))
    if (known === undefined) return undefined
    const selection = await restore(conversation, known, (segment) => tools.read(segment, job.owner))
    const sendBy = async (snapshot: Snapshot): Promise<Shortened & { readonly snapshot: Snapshot }> => {
      const prompt = rebuild(job.prompt, conversation.turns, selection, snapshot)
      return { prompt, tokens: await tools.meter.countOf(prompt, job.signal), snapshot }
    }
    let sent = await sendBy(known)
    if (sent.tokens > cap) return undefined
    if (mode === 'auto') {
      const room = Math.min(cap * BLOCK_SHARE, cap - sent.tokens - BLOCK_FRAME)
      const block = await lookUp(job, conversation, { room, selection, blocks: known.blocks }, tools)
      const withBlock = block === undefined ? sent : await sendBy({ ...known, blocks: [...known.blocks, block] })
      if (withBlock.tokens <= cap) sent = withBlock
    }
    await rememberAt(memory, job.owner, conversation, { kind: `slider-${cap}`, value: JSON.stringify(sent.snapshot) })
    return { prompt: sent.prompt, tokens: sent.tokens }
  }

  const fresh = async (job: TierJob, conversation: Conversation, cap: number): Promise<Shortened | undefined> => {
    const stable = mode === 'stable' || (mode === 'auto' && (await wasHere(job, conversation, cap)))
    const limits = {
      cap: stable ? cap * STABLE_SHARE : cap,
      liveCap: cap,
      exchangeRoom: cap * EXCHANGE_SHARE,
      byMeaning: true,
    }
    const cut = await cutToQuery(job, conversation, limits, tools)
    if (cut === undefined) return undefined
    if (stable) {
      const value = JSON.stringify(snapshotOf(conversation, cut.selected, cut.notice, job.now))
      await rememberAt(memory, job.owner, conversation, { kind: `slider-${cap}`, value })
    } else if (mode === 'auto') {
      await rememberAt(memory, job.owner, conversation, { kind: `slider-${cap}-seen`, value: String(job.now) })
    }
    return { prompt: cut.prompt, tokens: cut.tokens }
  }

  const wasHere = async (job: TierJob, conversation: Conversation, cap: number): Promise<boolean> => {
    // A repeated request is not a next turn. It gets the same cut.
    const seen = Number(await recallEarlier(memory, job.owner, conversation, `slider-${cap}-seen`))
    const frozen = await recallAt(memory, job.owner, conversation, `slider-${cap}`)
    return frozen !== undefined || (seen > 0 && job.now - seen < UPSTREAM_CACHE_MS)
  }

  return {
    tier: 5,
    wants: ({ steering }) => steering.level !== undefined && steering.level !== 'off',
    rewrite,
  }
}

interface Shortened {
  readonly prompt: TierJob['prompt']
  readonly tokens: number
}

function decline(declined: string): TierResult {
  return { declined, spent: ZERO }
}

const HEADING = '[Earlier parts of this conversation that may matter for the next message:]'
/** Minimum useful tokens. */
const MIN_ROOM = 200

interface LookUp {
  readonly room: number
  /** The parts that the prompt already contains. */
  readonly selection: Selection
  readonly blocks: readonly Block[]
}

/** Selects what a new question needs and the snapshot left out; undefined within an agent's loop. */
async function lookUp(
  job: TierJob,
  conversation: Conversation,
  { room, selection, blocks }: LookUp,
  tools: SelectionTools,
): Promise<Block | undefined> {
  const { turns } = conversation
  const before = turns.live[0]?.places[0]
  if (room < MIN_ROOM || turns.live.length !== 1 || before === undefined) return undefined
  if (blocks.some((block) => block.before === before)) return undefined
  const segments = turns.old.filter((segment) => selection.get(segment) !== segment.messages)
  const query = queryOf(turns)
  const similarities = await job.meaning?.similarities(conversation)
  const { owner, signal } = job
  const found = await select(
    { segments, steps: new Set(), query, ...(similarities !== undefined && { similarities }), room, owner, signal },
    tools,
  )
  if (found.matches === 0) return undefined
  const lines = segments.flatMap((segment) => {
    const messages = found.selection.get(segment)
    return messages === undefined ? [] : [serializeSegment({ ...segment, messages }, 'whole')]
  })
  return lines.length === 0 ? undefined : { before, text: [HEADING, ...lines].join('\n\n') }
}
