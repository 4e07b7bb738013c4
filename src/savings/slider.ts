import { ZERO } from '../core/money.ts'
import { cutToQuery } from './cut.ts'
import {
  freezeOf,
  parseFreeze,
  recallAt,
  recallEarlier,
  rememberAt,
  talkOf,
  thaw,
  type Freeze,
  type Talk,
} from './freeze.ts'
import { lookUp } from './look-up.ts'
import type { Memory } from './memory.ts'
import { rebuild } from './rebuild.ts'
import type { SelectionTools } from './selection.ts'
import type { Tier, TierJob, TierResult } from './tier.ts'
import { LEVEL_CAPS } from './wishes.ts'

/**
 * How the slider chooses what stays.
 *
 * - `query`: on every turn a new choice by the question; the best recall.
 * - `stable`: down to half of the cap, then the same choice on every turn until the cap is reached again; the
 *   upstream's own cache goes on knowing the beginning.
 * - `auto`: `query` for a conversation that is new here; for one whose last turn was here within five minutes `stable`,
 *   and before each new question a little of what it needs and the frozen choice left out.
 */
export type SliderMode = 'auto' | 'query' | 'stable'

export interface SliderOptions {
  /** @default 'auto' */
  readonly mode?: SliderMode
}

/** How long upstreams keep what they have read. */
const UPSTREAM_CACHE_MS = 5 * 60 * 1000
const STABLE_SHARE = 0.5
/** What a new question may look up of what the frozen cut left out. */
const BLOCK_SHARE = 1 / 16
const BLOCK_FRAME = 64
/** What the exchange before the last user message may take of the cap. */
const EXCHANGE_SHARE = 0.25

/** Tier 5: the head, the tail, and of the middle what the query needs most, within the level's cap. */
export function createSlider(tools: SelectionTools, memory: Memory, options: SliderOptions = {}): Tier {
  const mode = options.mode ?? 'auto'

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const { level } = job.wishes
    if (level === undefined || level === 'off') return decline('no level was asked for')
    const cap = LEVEL_CAPS[level]
    const least = await tools.meter.sizeNear(job.prompt, [cap], job.signal)
    const total = least <= cap ? least : await tools.meter.countOf(job.prompt, job.signal)
    if (total <= cap) return decline(`the prompt is within ${cap} tokens`)
    const talk = talkOf(job.prompt)
    const cut = (await thawed(job, talk, cap)) ?? (await fresh(job, talk, cap))
    if (cut === undefined) return decline('there is nothing that could be left out')
    return { rewrite: { ...cut, tier: 5, strategy: `Savings-Slider (${level}: ${cap} tokens)` }, spent: ZERO }
  }

  const thawed = async (job: TierJob, talk: Talk, cap: number): Promise<Shortened | undefined> => {
    if (mode === 'query') return undefined
    const known = parseFreeze(await recallAt(memory, job.owner, talk, `slider-${cap}`))
    if (known === undefined) return undefined
    const selection = await thaw(talk, known, (unit) => tools.read(unit, job.owner))
    const sendBy = async (freeze: Freeze): Promise<Shortened & { readonly freeze: Freeze }> => {
      const prompt = rebuild(job.prompt, talk.turns, selection, freeze)
      return { prompt, tokens: await tools.meter.countOf(prompt, job.signal), freeze }
    }
    let sent = await sendBy(known)
    if (sent.tokens > cap) return undefined
    if (mode === 'auto') {
      const room = Math.min(cap * BLOCK_SHARE, cap - sent.tokens - BLOCK_FRAME)
      const block = await lookUp(job, talk, { room, selection, blocks: known.blocks }, tools)
      const withBlock = block === undefined ? sent : await sendBy({ ...known, blocks: [...known.blocks, block] })
      if (withBlock.tokens <= cap) sent = withBlock
    }
    await rememberAt(memory, job.owner, talk, { kind: `slider-${cap}`, value: JSON.stringify(sent.freeze) })
    return { prompt: sent.prompt, tokens: sent.tokens }
  }

  const fresh = async (job: TierJob, talk: Talk, cap: number): Promise<Shortened | undefined> => {
    const stable = mode === 'stable' || (mode === 'auto' && (await wasHere(job, talk, cap)))
    const limits = { cap: stable ? cap * STABLE_SHARE : cap, liveCap: cap, exchangeRoom: cap * EXCHANGE_SHARE }
    const cut = await cutToQuery(job, talk, limits, tools)
    if (cut === undefined) return undefined
    if (stable) {
      const value = JSON.stringify(freezeOf(talk, cut.selected, cut.notice, job.now))
      await rememberAt(memory, job.owner, talk, { kind: `slider-${cap}`, value })
    } else if (mode === 'auto') {
      await rememberAt(memory, job.owner, talk, { kind: `slider-${cap}-seen`, value: String(job.now) })
    }
    return { prompt: cut.prompt, tokens: cut.tokens }
  }

  const wasHere = async (job: TierJob, talk: Talk, cap: number): Promise<boolean> => {
    // The same request again is no next turn: it gets the same cut again.
    const seen = Number(await recallEarlier(memory, job.owner, talk, `slider-${cap}-seen`))
    const frozen = await recallAt(memory, job.owner, talk, `slider-${cap}`)
    return frozen !== undefined || (seen > 0 && job.now - seen < UPSTREAM_CACHE_MS)
  }

  return {
    tier: 5,
    wants: ({ wishes }) => wishes.level !== undefined && wishes.level !== 'off',
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
