import { ZERO } from '../core/money.ts'
import type { Runtime } from '../core/ports.ts'
import { cutToQuery } from './cut.ts'
import { talkOf } from './freeze.ts'
import type { Memory } from './memory.ts'
import { turnsSoFar } from './outlook.ts'
import { askForTerms } from './search-terms.ts'
import type { SelectionTools } from './selection.ts'
import { DEFAULT_THRESHOLDS, isOrdered, isWanted, type Thresholds } from './thresholds.ts'
import type { Tier, TierForecast, TierJob, TierResult } from './tier.ts'
import { createTranscripts } from './transcript.ts'

export interface VanishingOptions {
  readonly thresholds?: Thresholds
  /** The prompt's size as a share of the conversation's. @default 0.01 */
  readonly targetShare?: number
  /** The prompt's size in tokens, at the least, for any context or by its size. @default DEFAULT_LEAST_TARGETS */
  readonly leastTarget?: LeastTarget
  readonly after: Runtime['after']
}

/** A size in tokens, or one for contexts of more than so many tokens each. */
export type LeastTarget = number | readonly { readonly above: number; readonly target: number }[]

/** A prompt of 4k keeps about 77 % of what a long chat's answer needs, one of 16k about 91 %. */
export const DEFAULT_LEAST_TARGETS: LeastTarget = [
  { above: 0, target: 4096 },
  { above: 40_000, target: 16_384 },
]

const TARGET_SHARE = 0.01
/** Answers so far up to which a conversation is one long request and what follows from it. */
const MAX_TURNS_OF_REQUEST = 2
/** Of a list without an entry for the context's size. */
const LEAST_TARGET = 4096
/** A live turn up to this size stays as it is. */
const LIVE_CAP = 16_384
/** What asking the small model for search terms takes, at about the most. */
const QUESTION_TOKENS = 2200
const ANSWER_TOKENS = 100

/** Tier 2: the conversation is stored, and the prompt holds only the sections that a keyword search finds. */
export function createVanishing(tools: SelectionTools, memory: Memory, options: VanishingOptions): Tier {
  const transcripts = createTranscripts(memory)
  const thresholds = options.thresholds ?? DEFAULT_THRESHOLDS
  const leastTarget = options.leastTarget ?? DEFAULT_LEAST_TARGETS

  /** Without an order the larger sizes are for one long request: a long conversation would pay them on every turn. */
  const capFor = (job: TierJob): number => {
    const isLarge = isOrdered(job, 2) || turnsSoFar(job.prompt) <= MAX_TURNS_OF_REQUEST
    const least = leastFor(leastTarget, isLarge ? job.tokens : 0)
    return Math.max(least, Math.round(job.tokens * (options.targetShare ?? TARGET_SHARE)))
  }

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const talk = talkOf(job.prompt)
    const total = talk.turns.old.length
    if (total === 0) return { declined: 'there are no earlier sections', spent: ZERO }
    const storing = transcripts.store(job.owner, talk)
    const { terms, spent } =
      job.small === undefined
        ? { terms: [], spent: ZERO }
        : await askForTerms({ small: job.small, turns: talk.turns, signal: job.signal, after: options.after })
    await storing
    const cap = capFor(job)
    const liveCap = Math.max(LIVE_CAP, cap)
    const limits = { cap, liveCap, excerptCap: liveCap, leastRoom: Math.round(cap / 2) }
    const cut = await cutToQuery(job, talk, { ...limits, terms }, tools)
    if (cut === undefined || cut.matches === 0) return { declined: 'no section matches the query', spent }
    const strategy = `Vanishing-Context (${cut.kept} of ${total} sections)`
    return { rewrite: { prompt: cut.prompt, tokens: cut.tokens, tier: 2, strategy }, spent }
  }

  /** The live turn stays whole up to its own limit, and the sections get at least half of the cap beside it. */
  const forecast = (job: TierJob): TierForecast => {
    const { turns } = talkOf(job.prompt)
    const system = job.prompt.messages.filter((message) => message.role === 'system')
    const staying = [...system, ...turns.live.flatMap((unit) => unit.messages)]
    const kept = staying.reduce((sum, message) => sum + tools.meter.estimateOfMessage(message), 0)
    const cap = capFor(job)
    const tokens = Math.max(cap, Math.min(kept, Math.max(LIVE_CAP, cap)) + Math.round(cap / 2))
    const calls = job.small?.price(QUESTION_TOKENS, ANSWER_TOKENS) ?? ZERO
    return { tokens, calls, callsPerTurn: calls }
  }

  return { tier: 2, wants: (job) => isWanted(job, 2, thresholds), forecast, rewrite }
}

/** The target of the largest context size that this one is above. */
function leastFor(leastTarget: LeastTarget, tokens: number): number {
  if (typeof leastTarget === 'number') return leastTarget
  const fitting = leastTarget.filter(({ above }) => tokens > above || above === 0)
  return fitting.toSorted((a, b) => a.above - b.above).at(-1)?.target ?? LEAST_TARGET
}
