import { chain, isPromise, lazy, type MaybePromise } from '../core/async.ts'
import { type NanoUsd, ZERO } from '../core/money.ts'
import type { Model } from '../core/ports.ts'
import type { WaterfallResult } from '../plugins/savings/tier.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import { Attempts } from '../upstream/attempts.ts'
import type { Planned, PromptCounts, RecallMiss, RecallResult, Reserved, Size } from './exchange.ts'
import type { recallFromCache } from '../plugins/cache/recall.ts'
import type { Services } from './services.ts'

export function plan(reserved: Reserved, services: Services): MaybePromise<Planned> {
  if (isSentUnchanged(reserved)) return planUnchanged(reserved)
  const recalled = recall(reserved, services)
  return isPromise(recalled)
    ? recalled.then((result) => planRecalled(reserved, result, services))
    : planRecalled(reserved, recalled, services)
}

function planRecalled(reserved: Reserved, recalled: RecallResult, services: Services): MaybePromise<Planned> {
  if ('replay' in recalled) return Object.assign(reserved, { plan: recalled.replay })
  if ('recalling' in recalled) {
    const planning = recalled.recalling.then((late) => planRecalled(reserved, late, services))
    // `callUpstream` handles the error.
    planning.catch(() => {})
    const planned = planUnchanged(reserved, MAY_BE_SHARED)
    Object.assign(planned.plan, { planning })
    return planned
  }
  if (!reserved.needsPauses) return planPrompt(reserved, recalled, services)
  return yieldToEventLoop().then(() => planPrompt(reserved, recalled, services))
}

function planPrompt(reserved: Reserved, recalled: RecallMiss, services: Services): MaybePromise<Planned> {
  const shortened = shorten(reserved, recalled, services)
  const { markPrompt } = services
  if (markPrompt === undefined || !needsCacheMarkers(reserved)) return shortened
  return chain(shortened, async (planned) =>
    (await import('../plugins/savings/optimize.ts')).addCacheMarkers(planned, markPrompt, services),
  )
}

function shorten(reserved: Reserved, recalled: RecallMiss, services: Services): MaybePromise<Planned> {
  const { steering, size, resolved } = reserved
  const { model } = resolved.routes[0]
  const unchanged = planUnchanged(reserved, recalled)
  if (services.waterfall.isTooSmall({ model, steering }, () => size.bound)) return unchanged
  const optimizing = import('../plugins/savings/optimize.ts').then(({ optimize }) => optimize(unchanged, services))
  return optimizing.catch((error: unknown) => {
    recalled.keeper.finish({ status: 500 })
    throw error
  })
}

/** Minimum length of a cacheable prefix, in tokens. Some models require a longer one. */
const MIN_PREFIX_TOKENS = 1024

function needsCacheMarkers({ resolved, prompt, size, steering }: Reserved): boolean {
  return (
    steering.level !== 'off' &&
    prompt.native.dialect !== 'responses' &&
    resolved.routes.every(({ provider, model }) => provider.dialect === 'anthropic' && hasMarkerPrice(model)) &&
    size.bound >= MIN_PREFIX_TOKENS
  )
}

function hasMarkerPrice({ price }: Model): boolean {
  return price.cacheWrite !== undefined && price.cacheRead !== undefined && price.cacheRead < price.input
}

/** True for compaction, background work, and conversations stored by the upstream. */
export function isSentUnchanged({ prompt, format }: Pick<Reserved, 'prompt' | 'format'>): boolean {
  const { value } = prompt.native
  if (value['thread'] !== undefined || prompt.operation !== undefined) return true
  return format.turns !== undefined && (value['background'] === true || format.turns.refersToUpstream(prompt))
}

export function planUnchanged(reserved: Reserved, { keeper, spent }: RecallMiss = NOT_CACHED): Planned {
  const { prompt, size, cancellation } = reserved
  const optimization = new UnchangedPrompt(size, spent)
  const attempts = new Attempts(cancellation)
  reserved.plan = { kind: 'upstream', prompt, optimization, counts: optimization, keeper, attempts }
  return reserved as Planned
}

class UnchangedPrompt implements WaterfallResult, PromptCounts {
  readonly spent: NanoUsd
  readonly verdicts: WaterfallResult['verdicts'] = []
  readonly #size: Size

  constructor(size: Size, spent: NanoUsd) {
    this.#size = size
    this.spent = spent
  }

  get tokens(): number {
    return this.#size.estimate
  }

  prepare(): MaybePromise<void> {
    return this.#size.prepare()
  }

  get original(): number {
    return this.#size.estimate
  }

  get sent(): number {
    return this.#size.estimate
  }
}

const NOT_CACHED: RecallMiss = { keeper: { finish: () => {} }, spent: ZERO }
/** The stream is stored, because the request may still become one that others follow. */
const MAY_BE_SHARED: RecallMiss = { keeper: { finish: () => {}, share: () => {} }, spent: ZERO }

type RecallFromCache = typeof recallFromCache
let loadedRecall: RecallFromCache | undefined
const loadRecall = lazy(async () => (loadedRecall = (await import('../plugins/cache/recall.ts')).recallFromCache))

function recall(reserved: Reserved, services: Services): MaybePromise<RecallResult> {
  const { answerCache } = services
  if (answerCache === undefined) return NOT_CACHED
  if (loadedRecall !== undefined) return loadedRecall(reserved, answerCache, services)
  return loadRecall().then((load) => load(reserved, answerCache, services))
}
