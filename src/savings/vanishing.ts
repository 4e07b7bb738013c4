import { ZERO } from '../core/money.ts'
import type { Runtime } from '../core/ports.ts'
import { cutToQuery } from './cut.ts'
import { talkOf } from './freeze.ts'
import type { Memory } from './memory.ts'
import { askForTerms } from './search-terms.ts'
import type { SelectionTools } from './selection.ts'
import { DEFAULT_THRESHOLDS, isWanted, type Thresholds } from './thresholds.ts'
import type { Tier, TierForecast, TierJob, TierResult } from './tier.ts'
import { createTranscripts } from './transcript.ts'

export interface VanishingOptions {
  readonly thresholds?: Thresholds
  /** The prompt's size as a share of the conversation's. @default 0.01 */
  readonly targetShare?: number
  /** The prompt's size in tokens, at the least. @default 4096 */
  readonly leastTarget?: number
  readonly after: Runtime['after']
}

const TARGET_SHARE = 0.01
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
  const least = options.leastTarget ?? LEAST_TARGET

  const capFor = (job: TierJob): number =>
    Math.max(least, Math.round(job.tokens * (options.targetShare ?? TARGET_SHARE)))

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
