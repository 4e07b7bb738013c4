import { lazy } from '../../core/async.ts'
import {
  checkFlag,
  expects,
  falseOr,
  listOf,
  numberFrom,
  oneOf,
  type OptionCheck,
  optionsOf,
  withDefaults,
} from '../../core/check-options.ts'
import type { Embedder } from '../../core/cache.ts'
import type { Meter, Runtime, Model } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import type { ShadowObserver } from './shadow.ts'
import type { CacheableRequest, MarkedPrompt } from './prompt-cache.ts'
import {
  DEFAULT_THRESHOLDS,
  isSteered,
  LEVEL_CAPS,
  type Thresholds,
  type Tier,
  type TierJob,
  type TierRequest,
  type UncountedResult,
  type Waterfall,
  type WaterfallResult,
} from './tier.ts'
import type { MinTarget, SliderMode } from './selection-tiers.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { checkEmbedder } from '../../core/check-embedder.ts'

/** Options for tiers 2 to 5 and the prompt cache. See docs/tiers. */
export interface SavingsOptions {
  /**
   * Prompt tokens above which tiers 2, 3 and 4 can run without a header, before `Model.thresholdFactor` is applied.
   * @default 50_000, 80_000 and 20_000
   */
  readonly thresholdTokens?: Partial<Thresholds>
  /** How tier 5 chooses the content to keep. `false` switches the tier off. @default 'auto' */
  readonly slider?: false | SliderMode
  /**
   * Source of the summaries in tiers 3 and 4: sentences copied from the conversation at no cost (`extractive`), or a
   * small model of the requested model's family (`model`, or `extractive` if it is missing or fails). @default 'model'
   */
  readonly summarizer?: 'model' | 'extractive'
  /**
   * Size of the prompt that tier 2 builds, as a share of the received prompt and a minimum in tokens. The minimum can
   * depend on the size of the received prompt. Tripled for a question that needs each mention of a subject, such as a
   * summary. `false` switches tier 2 off.
   * @default { targetShare: 0.01, minTargetTokens: [{ aboveTokens: 0, targetTokens: 4096 }, { aboveTokens: 40_000, targetTokens: 16_384 }] }
   */
  readonly vanishing?: false | { readonly targetShare?: number; readonly minTargetTokens?: MinTarget }
  /** Tier 3, summaries of the oldest parts. `false` switches it off. @default true */
  readonly recursive?: boolean
  /** Tier 4, running summaries by a small model. `false` switches it off. @default true */
  readonly family?: boolean
  /**
   * Ranks the parts of a conversation by meaning as well as by words, in tiers 5 and 2. Receives the beginnings of the
   * question and of recent messages. If it fails, or none of its calls ends within 3 seconds, the ranking uses words only.
   * @default none
   */
  readonly embedder?: Embedder
  /** Replaces, removes or reorders tiers. @default 5, 2, 3, 4 */
  readonly tiers?: readonly Tier[] | ((builtIn: readonly Tier[]) => readonly Tier[])
  /**
   * If true, tiers 2, 3 and 4 also rewrite conversations with tools without a header. On recorded sessions of coding
   * agents, rewritten prompts lacked 18% of the lines with identifiers that the agent used next.
   * @default false: only prompt-cache markers are added to conversations with tools
   */
  readonly agents?: boolean
  /**
   * Share of the evidence, from 0 to 1, that tiers 2, 3 and 4 keep without a header. They send as much as the published
   * measurements require for it, and decline where that saves too little. 0 for the smallest prompts. A size in
   * `vanishing` and custom tiers are not bound by it. See docs/tiers/evidence.md.
   *
   * @default 0.97
   */
  readonly keep?: number
  /**
   * If set, no tier changes a request without a savings header. The gateway tries the tiers on this share of such
   * requests, from 0 to 1, and logs the rewrites. @default none: the tiers run
   */
  readonly shadowShare?: number
  /**
   * Adds markers for the prompt cache of vendors that cache marked prefixes (the messages format), if the markers are
   * expected to save money and the caller has set none. `false` adds none. @default true
   */
  readonly promptCache?: boolean
}

const checkTokens = numberFrom(0, 1e9)
const checkTarget = numberFrom(200, 1e6)
const checkTargets = listOf(
  'a number from 200 to 1000000, or a list of { aboveTokens, targetTokens }',
  optionsOf({ aboveTokens: checkTokens, targetTokens: checkTarget }, ['aboveTokens', 'targetTokens']),
  1,
)

export const checkSavings: OptionCheck = optionsOf({
  thresholdTokens: optionsOf({ vanishing: checkTokens, recursive: checkTokens, family: checkTokens }),
  slider: falseOr(oneOf('auto', 'query', 'stable')),
  summarizer: oneOf('model', 'extractive'),
  vanishing: falseOr(
    optionsOf({
      targetShare: numberFrom(0.0001, 1),
      minTargetTokens: (value, path) =>
        typeof value === 'number' ? checkTarget(value, path) : checkTargets(value, path),
    }),
  ),
  recursive: checkFlag,
  family: checkFlag,
  embedder: checkEmbedder,
  tiers: expects(
    'a list of tiers, or a function that receives the built-in tiers and returns a list',
    (value) => Array.isArray(value) || typeof value === 'function',
  ),
  agents: checkFlag,
  keep: numberFrom(0, 1),
  shadowShare: numberFrom(0, 1),
  promptCache: checkFlag,
} satisfies Record<keyof SavingsOptions, OptionCheck>)

export interface SavingsDependencies {
  readonly store: Pick<Store, 'get' | 'set'>
  readonly meter: Meter
  readonly runtime: Runtime
  /** True if verdicts must state what each tier would keep. */
  readonly explains?: boolean
}

/** Resolves with undefined if no markers are added. */
export type MarkPrompt = (request: CacheableRequest) => Promise<MarkedPrompt | undefined>

export function createPromptMarker(
  options: SavingsOptions,
  { store, runtime }: Pick<SavingsDependencies, 'store' | 'runtime'>,
): MarkPrompt | undefined {
  if (options.promptCache === false) return undefined
  const load = lazy(async () => {
    const { createMemory, markForCache } = await import('./optimize.ts')
    const memory = createMemory({ store, now: runtime.now })
    return (request: CacheableRequest) => markForCache(memory, request)
  })
  return async (request) => (await load())(request)
}

export function createSavings(
  options: SavingsOptions,
  dependencies: SavingsDependencies,
  observer: ShadowObserver,
): Waterfall {
  const waterfall = lazyWaterfall(options, dependencies)
  const { shadowShare: share } = options
  if (share === undefined) return waterfall
  const load = lazy(async () => {
    const { createShadow } = await import('./optimize.ts')
    return createShadow({ waterfall, share, random: dependencies.runtime.random, yieldToEventLoop, observer })
  })
  const shadowed = async (job: TierJob): Promise<WaterfallResult> =>
    isSteered(job) ? waterfall(job) : (await load())(job)
  const passUnchanged: Waterfall['passUnchanged'] = async (request, maxTokens) =>
    (await load()).passUnchanged(request, maxTokens)
  return Object.assign(shadowed, waterfall, { passUnchanged })
}

function lazyWaterfall(options: SavingsOptions, { runtime, ...dependencies }: SavingsDependencies): Waterfall {
  const { shadowShare: _, promptCache: __, ...others } = options
  const thresholdTokens = withDefaults(DEFAULT_THRESHOLDS, options.thresholdTokens)
  const minThreshold = Math.min(...Object.values(thresholdTokens))
  const hasCustomTiers = options.tiers !== undefined
  const load = lazy(async () => {
    const { createWaterfall } = await import('./optimize.ts')
    const { now, after } = runtime
    return createWaterfall({ ...others, ...dependencies, thresholdTokens, now, after, yieldToEventLoop })
  })
  const optimize = async (job: TierJob): Promise<WaterfallResult> => (await load())(job)
  const isTooSmall: Waterfall['isTooSmall'] = ({ model, steering }, maxTokens) => {
    if (hasCustomTiers) return false
    const { level } = steering
    if (level !== undefined) return level === 'off' || maxTokens() <= LEVEL_CAPS[level]
    return !steering.vanishing && !steering.recursive && maxTokens() <= minTrackedTokens(model, minThreshold)
  }
  const passUnchanged = async (request: TierRequest, maxTokens: number): Promise<UncountedResult | undefined> =>
    hasCustomTiers ? undefined : (await load()).passUnchanged(request, maxTokens)
  return Object.assign(optimize, { isTooSmall, passUnchanged })
}

/** Up to this size, no automatic tier runs and no history is stored. */
function minTrackedTokens(model: Model, minThreshold: number): number {
  return (minThreshold * (model.thresholdFactor ?? 1)) / 2
}
