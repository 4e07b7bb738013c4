import { asCount, isJsonObject, type Json } from '../core/json.ts'
import { add, ZERO, type NanoUsd } from '../core/money.ts'
import type { Meter, Runtime, Store } from '../core/ports.ts'
import { createPause } from '../core/pause.ts'
import { createFamilyLock } from './family.ts'
import { recallAt, rememberAt, talkOf } from './freeze.ts'
import { createMemory, type Memory } from './memory.ts'
import { COLD, hasCacheMarks, pays, type Warmth } from './net.ts'
import { createReader } from './reading.ts'
import { createRecursive } from './recursive.ts'
import type { SelectionTools } from './selection.ts'
import { createSlider, type SliderMode } from './slider.ts'
import type { Summariser } from './summary.ts'
import { DEFAULT_THRESHOLDS, isOrdered, thresholdsFor, type Thresholds } from './thresholds.ts'
import type { Optimized, Rewrite, SmallModel, Tier, TierJob, TierVerdict } from './tier.ts'
import { createVanishing } from './vanishing.ts'

export interface WaterfallOptions {
  readonly meter: Meter
  readonly store: Pick<Store, 'get' | 'set'>
  readonly now: Runtime['now']
  readonly after: Runtime['after']
  /** Lets the rest of the process run: long conversations are read in slices. */
  readonly breathe: () => Promise<void>
  readonly thresholds?: Partial<Thresholds>
  /** How the slider chooses. @default 'auto' */
  readonly slider?: SliderMode
  /** Who writes the summaries of tiers 3 and 4. @default 'model' */
  readonly summariser?: Summariser
  /** Sizes of tier 2's prompt. */
  readonly vanishing?: { readonly targetShare?: number; readonly leastTarget?: number }
  /** Replaces the order 5, 2, 3, 4. */
  readonly tiers?: readonly Tier[] | ((own: readonly Tier[]) => readonly Tier[])
}

/** How long upstreams keep what they have read. */
const UPSTREAM_CACHE_MS = 5 * 60 * 1000
const SENT = 'sent'

/** The tiers in their order 5, 2, 3, 4: the first that is wanted, pays and succeeds makes the prompt. Never rejects. */
export function createWaterfall(options: WaterfallOptions): (job: TierJob) => Promise<Optimized> {
  const { meter, breathe, after, now, store } = options
  const thresholds: Thresholds = { ...DEFAULT_THRESHOLDS, ...options.thresholds }
  const summariser = options.summariser ?? 'model'
  const pause = createPause(breathe)
  const tools: SelectionTools = { meter, read: createReader(meter.tokenizer.estimate, pause), pause }
  const memory = createMemory({ store, now })
  const own: readonly Tier[] = [
    createSlider(tools, memory, options.slider === undefined ? {} : { mode: options.slider }),
    createVanishing(tools, memory, { ...options.vanishing, thresholds, after }),
    createRecursive(tools, memory, { thresholds, summariser }),
    createFamilyLock(tools, memory, { thresholds, summariser }),
  ]
  const tiers = typeof options.tiers === 'function' ? options.tiers(own) : (options.tiers ?? own)

  return async (given) => {
    const verdicts: TierVerdict[] = []
    let spent: NanoUsd = ZERO
    let ordered: NanoUsd = ZERO
    if (given.wishes.level === 'off') return { tokens: given.tokens, spent, verdicts }
    const job = await measured(given, { meter, thresholds })
    const warmth = await orElse(COLD, warmthOf(memory, job, thresholds))
    for (const tier of job.shadow === 'not-tried' ? [] : tiers) {
      const outcome = await attempt(tier, forTiers(job), warmth, meter)
      spent = add(spent, outcome.spent)
      if (isOrdered(job, tier.tier)) ordered = add(ordered, outcome.spent)
      verdicts.push(outcome.verdict)
      if (outcome.rewrite === undefined) continue
      await orElse(undefined, noteSent(memory, job, outcome.rewrite, thresholds))
      return { rewrite: outcome.rewrite, tokens: outcome.tokens, spent, ordered, verdicts }
    }
    await orElse(undefined, noteSent(memory, job, undefined, thresholds))
    return { tokens: job.tokens, spent, ordered, verdicts } satisfies Optimized
  }
}

/** What is remembered of a conversation helps and is never needed. */
async function orElse<value>(otherwise: value, work: Promise<value>): Promise<value> {
  try {
    return await work
  } catch {
    return otherwise
  }
}

/** The job with an exact size where the estimate is too near to a threshold to decide. */
async function measured(
  job: TierJob,
  { meter, thresholds }: { readonly meter: Meter; readonly thresholds: Thresholds },
): Promise<TierJob> {
  if (job.wishes.level !== undefined || job.shadow === 'not-tried') return job
  const { signal, prompt } = job
  const near = Object.values(thresholdsFor(job, thresholds))
  return { ...job, tokens: await orElse(job.tokens, meter.sizeNear(prompt, near, signal)) }
}

interface Attempt {
  readonly rewrite?: Rewrite
  /** Exact tokens of the prompt as it came, with a rewrite. */
  readonly tokens: number
  readonly spent: NanoUsd
  readonly verdict: TierVerdict
}

async function attempt(tier: Tier, job: TierJob, warmth: Warmth, meter: Meter): Promise<Attempt> {
  const { tokens } = job
  const verdictOf = (outcome: TierVerdict['outcome'], reason: string): TierVerdict => ({
    tier: tier.tier,
    outcome,
    reason,
  })
  const pass = (verdict: TierVerdict, spent: NanoUsd = ZERO): Attempt => ({ tokens, spent, verdict })
  const purse = createPurse(job.small)
  try {
    if (!tier.wants(job)) return pass(verdictOf('not-wanted', 'neither a header nor the size calls for it'))
    if (!isOrdered(job, tier.tier)) {
      if (hasCacheMarks(job.prompt)) return pass(verdictOf('declined', 'the caller marked a prefix with cache_control'))
      const forecast = tier.forecast?.(job)
      const comparison = { model: job.model, tokens, warmth }
      if (forecast !== undefined && !pays({ ...comparison, optimizedTokens: forecast.tokens, calls: forecast.calls })) {
        return pass(verdictOf('does-not-pay', 'sending everything costs less'))
      }
    }
    const result = await tier.rewrite({ ...job, small: purse.small })
    if ('declined' in result) return pass(verdictOf('declined', result.declined), result.spent)
    const original = await meter.countOf(job.prompt, job.signal)
    if (result.rewrite.tokens >= original) return pass(verdictOf('declined', 'not smaller than before'), result.spent)
    return {
      rewrite: result.rewrite,
      tokens: original,
      spent: result.spent,
      verdict: verdictOf('chosen', result.rewrite.strategy),
    }
  } catch (error) {
    return pass(verdictOf('failed', error instanceof Error ? error.message : 'unknown error'), purse.spent())
  }
}

/** The small model, and what its calls cost: a tier that fails does not report what it has spent. */
function createPurse(small: SmallModel | undefined): { readonly small: typeof small; readonly spent: () => NanoUsd } {
  let spent: NanoUsd = ZERO
  if (small === undefined) return { small, spent: () => spent }
  const ask: SmallModel['ask'] = async (question) => {
    const reply = await small.ask(question)
    spent = add(spent, reply.spent)
    return reply
  }
  return { small: { ...small, ask }, spent: () => spent }
}

/** Small conversations are never optimised without an order, so nothing needs to be known of them. */
function isWorthNoting(job: TierJob, thresholds: Thresholds): boolean {
  return job.tokens > Math.min(...Object.values(thresholdsFor(job, thresholds))) / 2
}

/** What the upstream's cache still holds of this conversation; nothing where it has no lower price for that. */
async function warmthOf(memory: Memory, job: TierJob, thresholds: Thresholds): Promise<Warmth> {
  const { cacheRead, input } = job.model.price
  if (cacheRead === undefined || cacheRead >= input || !isWorthNoting(job, thresholds)) return COLD
  const note = parseNote(await recallAt(memory, job.owner, talkOf(job.prompt), SENT))
  if (note === undefined || job.now - note.at > UPSTREAM_CACHE_MS) return COLD
  return note.optimized ? { passedThrough: 0, optimized: note.tokens } : { passedThrough: note.tokens, optimized: 0 }
}

/** What a trial remembers is found by trials only: it was never sent. */
function forTiers(job: TierJob): TierJob {
  return job.shadow === undefined ? job : { ...job, owner: `${job.owner} shadow` }
}

/** Remembers in which form the conversation was sent. */
async function noteSent(
  memory: Memory,
  job: TierJob,
  optimized: Rewrite | undefined,
  thresholds: Thresholds,
): Promise<void> {
  if (!isWorthNoting(job, thresholds)) return
  const rewrite = job.shadow === undefined ? optimized : undefined
  const note: Note = { at: job.now, tokens: rewrite?.tokens ?? job.tokens, optimized: rewrite !== undefined }
  await rememberAt(memory, job.owner, talkOf(job.prompt), { kind: SENT, value: JSON.stringify(note) })
}

interface Note {
  readonly at: number
  readonly tokens: number
  readonly optimized: boolean
}

function parseNote(text: string | undefined): Note | undefined {
  if (text === undefined) return undefined
  let value: Json
  try {
    value = JSON.parse(text) as Json
  } catch {
    return undefined
  }
  if (!isJsonObject(value)) return undefined
  const at = asCount(value['at'])
  const tokens = asCount(value['tokens'])
  return at === undefined || tokens === undefined ? undefined : { at, tokens, optimized: value['optimized'] === true }
}
