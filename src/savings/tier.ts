import type { Model } from '../core/model.ts'
import type { NanoUsd } from '../core/money.ts'
import type { Prompt } from '../core/prompt.ts'
import type { Conversation, Segment } from './conversation.ts'
import type { SmallModel } from './small-model.ts'
import { notUnderstood, readFlag, type HeaderView } from '../core/http.ts'

/** 2 vanishing context, 3 recursive summaries, 4 family-locked summary, 5 savings slider. Tier 1, the cache, runs before them. */
export type TierNumber = 2 | 3 | 4 | 5
type SavingsLevel = 'extreme' | 'max' | 'med' | 'min' | 'off'

/** The values of the three steering headers. */
export interface Steering {
  readonly level?: SavingsLevel
  readonly vanishing: boolean
  readonly recursive: boolean
}

/** Similarity of segments to the question, from 0 to 1 for the most similar. Segments without a vector are absent. */
export type Similarities = ReadonlyMap<Segment, number>

/** The data of a request that tiers use. */
export interface TierJob {
  readonly prompt: Prompt
  /** The model's name as the caller wrote it, for the strategy text. */
  readonly modelName: string
  readonly model: Model
  /**
   * Estimated tokens of the received prompt. The waterfall counts exactly when the estimate is too close to a
   * threshold.
   */
  readonly tokens: number
  readonly steering: Steering
  /** The id of the key. State is never shared between owners. */
  readonly owner: string
  readonly small: SmallModel | undefined
  /** Compares segments with the question by the configured embedder. Its cost is added to the result of the tier. */
  readonly meaning?: {
    similarities(conversation: Conversation): Promise<Similarities | undefined>
    price(conversation: Conversation): NanoUsd
  }
  readonly signal: AbortSignal
  readonly now: number
  /** The prompt is sent as received, with or without a trial run of the tiers. @default undefined: the tiers decide */
  readonly shadow?: 'tried' | 'not-tried'
}

export interface Rewrite {
  readonly prompt: Prompt
  readonly tier: TierNumber
  /** The value of X-Svc-Strategy. */
  readonly strategy: string
  /** Tokens of the rewritten prompt, by the same count as `TierJob.tokens`. */
  readonly tokens: number
}

/** A smaller prompt, or the reason why there is none, and the cost of small-model calls in either case. */
export type TierResult =
  | {
      readonly rewrite: Rewrite
      readonly spent: NanoUsd
      /** True when the prompt begins with what this tier sent on the turn before. @default false */
      readonly continues?: boolean
    }
  | { readonly declined: string; readonly spent: NanoUsd }

/** The expected result of a tier before it runs. */
export interface TierForecast {
  /** Tokens of its prompt. */
  readonly tokens: number
  /** Cost of its small-model calls for this request. */
  readonly calls: NanoUsd
  /** Cost of its small-model calls for each further request. @default 0 */
  readonly callsPerTurn?: NanoUsd
  /** True when the prompt begins with what this tier sent on the turn before. @default false */
  readonly continues?: boolean
  /** Present when the prompt stays the same from turn to turn and only grows, up to a limit. @default a new prompt each turn */
  readonly steady?: {
    /** Tokens above which the prompt is cut again. */
    readonly limit: number
    /** Tokens after a cut. */
    readonly target: number
    /** Cost of a cut. */
    readonly calls: NanoUsd
  }
}

/** One way of shortening a prompt. */
export interface Tier {
  readonly tier: TierNumber
  /** Returns true when a header or the size selects this tier. Pure and cheap. */
  wants(job: TierJob): boolean
  /**
   * Called before the tier runs without a header. The cheapest way of sending is chosen. Without a forecast the tier
   * always runs.
   */
  forecast?(job: TierJob): TierForecast | Promise<TierForecast>
  rewrite(job: TierJob): Promise<TierResult>
}

/** The outcome of each tier, for the log record and for explain. */
export interface TierVerdict {
  readonly tier: TierNumber
  readonly outcome: 'chosen' | 'not-wanted' | 'declined' | 'does-not-pay' | 'failed'
  readonly reason: string
}

/** The result of the waterfall. */
export interface WaterfallResult {
  /** Absent: passthrough. */
  readonly rewrite?: Rewrite
  /** Tokens of the received prompt: exact when there is a rewrite, else an estimate. */
  readonly tokens: number
  /** Cost of all small-model calls, including those of tiers that declined. */
  readonly spent: NanoUsd
  /** The part of `spent` of tiers that a header ordered. @default 0 */
  readonly ordered?: NanoUsd
  readonly verdicts: readonly TierVerdict[]
  /**
   * Reports how many tokens of the prompt the upstream has read from its cache, so that later turns expect realistic
   * values. Never rejects. Absent when the conversation is not followed.
   */
  reportCacheRead?(tokens: number): Promise<void>
}

/** Tiers in their order. */
export interface Waterfall {
  /** Never rejects: a failing tier is a verdict. */
  (job: TierJob): Promise<WaterfallResult>
  /** Returns true when no tier can shorten a prompt of at most this many tokens, so that it needs no count. */
  isBelow(request: Pick<TierJob, 'model' | 'steering'>, maxTokens: () => number): boolean
}

/** Prompts of more tokens than this start a tier without a header. */
export interface Thresholds {
  /** Tier 2. @default 50_000 */
  readonly vanishing: number
  /** Tier 3. @default 80_000 */
  readonly recursive: number
  /** Tier 4. @default 20_000 */
  readonly family: number
}

export const DEFAULT_THRESHOLDS: Thresholds = { vanishing: 50_000, recursive: 80_000, family: 20_000 }

/** The thresholds for the job's model: `-optim` variants halve them. */
export function thresholdsFor(job: TierJob, thresholds: Thresholds): Thresholds {
  const factor = job.model.thresholdFactor ?? 1
  return {
    vanishing: thresholds.vanishing * factor,
    recursive: thresholds.recursive * factor,
    family: thresholds.family * factor,
  }
}

/** Returns true when a header orders this tier. It then runs whenever it makes the prompt smaller. */
export function isOrdered({ steering }: TierJob, tier: TierNumber): boolean {
  if (steering.level !== undefined) return tier === 5
  return steering.vanishing ? tier === 2 : steering.recursive && tier === 3
}

/**
 * Returns true when a header or the size selects tier 2, 3 or 4. A savings level excludes them. After an ordered tier
 * declined, later tiers are selected by size. Tier 2 is not selected by size before an ordered tier 3.
 */
export function isWanted(job: TierJob, tier: 2 | 3 | 4, thresholds: Thresholds): boolean {
  if (job.steering.level !== undefined) return false
  if (isOrdered(job, tier)) return true
  const { vanishing, recursive, family } = thresholdsFor(job, thresholds)
  if (tier === 2) return !job.steering.recursive && job.tokens > vanishing
  if (tier === 3) return job.steering.recursive || job.tokens > recursive
  return job.tokens > family
}

/** Maximum prompt tokens of each savings level. */
export const LEVEL_CAPS: Readonly<Record<Exclude<SavingsLevel, 'off'>, number>> = {
  extreme: 16_384,
  max: 32_768,
  med: 65_536,
  min: 131_072,
}

const LEVELS: readonly SavingsLevel[] = ['extreme', 'max', 'med', 'min', 'off']

/** Reads the three steering headers. Throws `invalid-request`, with the header as `param`, for an invalid value. */
export function readSteeringHeaders(headers: Pick<HeaderView, 'get'>): Steering {
  const asked = headers.get('x-savings-level')
  const level = LEVELS.find((known) => known === asked?.trim().toLowerCase())
  if (asked !== null && level === undefined) {
    throw notUnderstood('X-Savings-Level', asked, `one of ${LEVELS.join(', ')}`)
  }
  return {
    ...(level !== undefined && { level }),
    vanishing: readFlag(headers, 'X-Vanishing-Context'),
    recursive: readFlag(headers, 'X-Svc-RLM'),
  }
}

/** The effect that the tiers would have had on a request that was sent as received. */
export interface ShadowRecord {
  readonly strategy: string
  readonly originalTokens: number
  readonly optimizedTokens: number
  /** Cost of small-model calls, which were made. */
  readonly spent: NanoUsd
}

/** Returns true for the share of requests that are only tried. `random` is from 0 up to 1, `share` from 0 to 1. */
export function isShadowed(share: number, random: number): boolean {
  return random < share
}

/** Returns the passthrough result that is sent, and a record of the result that was not. */
export function shadow(optimized: WaterfallResult): {
  readonly sent: WaterfallResult
  readonly record: ShadowRecord | undefined
} {
  const { rewrite, ...others } = optimized
  if (rewrite === undefined) return { sent: optimized, record: undefined }
  const { tokens, spent } = optimized
  const record = { strategy: rewrite.strategy, originalTokens: tokens, optimizedTokens: rewrite.tokens, spent }
  return { sent: others, record }
}
