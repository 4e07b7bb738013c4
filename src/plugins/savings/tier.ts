import type { Model, SmallModel } from '../../core/ports.ts'
import type { NanoUsd, Usage } from '../../core/money.ts'
import type { Part, Prompt } from '../../core/prompt.ts'
import type { Conversation } from './conversation.ts'
import type { Similarities } from './similarities.ts'
import type { Snapshot } from './snapshot.ts'
import { headerError, readFlag, type HttpRequest } from '../../core/http.ts'

/** 2: vanishing context, 3: recursive summaries, 4: family-locked summary, 5: savings slider. Tier 1 is the cache. */
export type TierNumber = 2 | 3 | 4 | 5
/** A value of the header `X-Savings-Level`. */
export type SavingsLevel = 'extreme' | 'max' | 'med' | 'min' | 'off'

/** The savings headers of a request. */
export interface Steering {
  readonly level?: SavingsLevel
  readonly vanishing: boolean
  readonly recursive: boolean
  /** Runs the requested tier even if sending everything is cheaper. @default false */
  readonly force?: boolean
}

/** A request that tiers may rewrite. */
export interface TierJob {
  readonly prompt: Prompt
  readonly modelName: string
  readonly model: Model
  /** Tokens of the received prompt: estimated, or counted exactly if the estimate is too close to a threshold. */
  readonly tokens: number
  readonly steering: Steering
  readonly owner: string
  readonly small: SmallModel | undefined
  /** Ranks segments with the configured embedder. @default none */
  readonly semantics?: {
    similarities(conversation: Conversation): Promise<Similarities | undefined>
    price(conversation: Conversation): NanoUsd
  }
  readonly signal: AbortSignal
  readonly now: number
  /** Set if the prompt is sent unchanged: `tried` if the tiers run as a trial. @default the tiers decide */
  readonly shadow?: 'tried' | 'not-tried'
}

/** The prompt that a tier sends instead of the received one. */
export interface Rewrite {
  readonly prompt: Prompt
  readonly tier: TierNumber
  readonly strategy: string
  readonly tokens: number
}

/** `spent` is the cost of small-model calls. */
export type TierResult =
  | {
      readonly rewrite: Rewrite
      readonly spent: NanoUsd
      /** True if the prompt extends the one that this tier sent on the last turn. @default false */
      readonly continues?: boolean
      /** Tokens that the next turn repeats. @default all */
      readonly stableTokens?: number
      /** Repeats this rewrite on later turns. Without it, a requested tier cannot be continued. */
      readonly snapshot?: Snapshot
    }
  | { readonly declined: string; readonly spent: NanoUsd }

/** What a tier expects to send and to spend. The gateway compares it with sending everything. */
export interface TierForecast {
  readonly tokens: number
  /** The part of `tokens` that the next turn replaces. @default 0 */
  readonly blockTokens?: number
  /** Expected cost of small-model and embedder calls for this request. */
  readonly callCost: NanoUsd
  /** Expected cost of these calls for each further request. @default 0 */
  readonly callCostPerTurn?: NanoUsd
  /** True if the prompt extends the one that this tier sent on the last turn. @default false */
  readonly continues?: boolean
  /** Present if each turn extends the last prompt up to `limit` tokens. @default a new prompt on each turn */
  readonly nextCut?: {
    readonly limit: number
    readonly target: number
    readonly callCost: NanoUsd
  }
}

/** What a tier is expected to keep if it runs without a header. */
export interface KeptEvidence {
  /** Size of the prompt in tokens. */
  readonly tokens: number
  /** Share of the evidence, from 0 to 1. */
  readonly share: number
}

/** A savings tier, which may send a shorter prompt than the received one. */
export interface Tier {
  readonly tier: TierNumber
  /** Returns true if a header or the size of the prompt selects this tier. */
  wants(job: TierJob): boolean
  /** Without a header, the tier runs only if it keeps `savings.keep`. @default not bound by it */
  keeps?(job: TierJob): KeptEvidence | undefined
  /** Predicts the cost, which decides whether the tier runs without a header. @default runs at any cost */
  forecast?(job: TierJob): TierForecast | Promise<TierForecast>
  rewrite(job: TierJob): Promise<TierResult>
}

export interface TierVerdict {
  readonly tier: TierNumber
  readonly outcome: 'chosen' | 'not-wanted' | 'declined' | 'below-floor' | 'does-not-pay' | 'failed'
  readonly reason: string
}

/** What is known about a request after its response. */
export interface SentReport {
  /** Tokens of the sent prompt, as billed. */
  readonly promptTokens: number
  /** Undefined if the vendor has not reported any. */
  readonly usage: Usage | undefined
}

export interface WaterfallResult {
  readonly rewrite?: Rewrite
  /** Present if a header requested a tier that would have cost more than sending everything. */
  readonly strategy?: string
  /** Tokens of the received prompt: counted exactly if there is a rewrite, otherwise as in `TierJob`. */
  readonly tokens: number
  /** Includes the calls of tiers that declined. */
  readonly spent: NanoUsd
  /** The part of `spent` for tiers requested by a header. @default 0 */
  readonly requestedCost?: NanoUsd
  readonly verdicts: readonly TierVerdict[]
  /**
   * Share of the received prompt that the vendor's cache would serve if the tiers had never rewritten the conversation,
   * from 0 to 1. @default what the vendor reports, or 0 for a rewritten prompt
   */
  readonly servedShare?: number
  /** Tokens that a rewritten prompt and the received one have in common at their beginning: tools and first messages. */
  readonly commonPrefixTokens?: number
  /** Tokens of the sent prompt that the vendor's cache is expected to serve. @default 0 */
  readonly expectedCacheRead?: () => number
  /**
   * The vendor's tokens per estimated token of the received prompt, as the vendor reported them for an earlier turn.
   * @default those of the sent prompt
   */
  readonly vendorRatio?: number
  /**
   * Records that the vendor has processed the sent prompt, for later turns of the conversation. Never rejects. Absent if
   * no history is stored for the prompt.
   */
  reportSent?(report?: SentReport): Promise<void>
  /** Reports the response, or undefined if it is incomplete. Never throws. Present for shadow trials. */
  reportResponse?(response: readonly Part[] | undefined): void
}

/** A prompt that is sent unchanged without being counted. */
export type UncountedResult = Pick<WaterfallResult, 'verdicts' | 'expectedCacheRead' | 'reportSent'>

/** A request whose prompt has not been counted. */
export type TierRequest = Omit<TierJob, 'tokens' | 'semantics' | 'shadow'>

export interface Waterfall {
  (job: TierJob): Promise<WaterfallResult>
  /**
   * Decides from the structure of a prompt of at most `maxTokens` tokens, before anything is counted. Resolves with
   * undefined if a tier may rewrite the prompt.
   */
  passUnchanged(request: TierRequest, maxTokens: number): Promise<UncountedResult | undefined>
  /** Returns true only if no tier can rewrite a prompt of at most this many tokens. */
  isTooSmall(request: Pick<TierJob, 'model' | 'steering'>, maxTokens: () => number): boolean
}

/** Tokens above which tier 2 (vanishing), 3 (recursive) or 4 (family) may run without a header. */
export interface Thresholds {
  readonly vanishing: number
  readonly recursive: number
  readonly family: number
}

export const DEFAULT_THRESHOLDS: Thresholds = { vanishing: 50_000, recursive: 80_000, family: 20_000 }

export function isSteered({ steering }: Pick<TierJob, 'steering'>): boolean {
  return steering.level !== undefined || steering.vanishing || steering.recursive
}

/** Prompt tokens above which tier 5 shortens the prompt, per savings level. */
export const LEVEL_CAPS: Readonly<Record<Exclude<SavingsLevel, 'off'>, number>> = {
  extreme: 16_384,
  max: 32_768,
  med: 65_536,
  min: 131_072,
}

export const LEVELS: readonly SavingsLevel[] = ['extreme', 'max', 'med', 'min', 'off']

export function readSteeringHeaders(request: Pick<HttpRequest, 'header'>): Steering {
  const header = request.header('x-savings-level')
  const level = LEVELS.find((known) => known === header?.trim().toLowerCase())
  if (header !== undefined && level === undefined) {
    throw headerError('X-Savings-Level', header, `one of ${LEVELS.join(', ')}`)
  }
  return {
    ...(level !== undefined && { level }),
    vanishing: readFlag(request, 'X-Vanishing-Context'),
    recursive: readFlag(request, 'X-Svc-RLM'),
    ...(readFlag(request, 'X-Svc-Force') && { force: true }),
  }
}
