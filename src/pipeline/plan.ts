import { chain, type MaybePromise } from '../core/async.ts'
import type { Model } from '../core/ports.ts'
import { add, type NanoUsd } from '../core/money.ts'
import type { WaterfallResult } from '../savings/tier.ts'
import { Attempts } from '../upstream/attempts.ts'
import type { Planned, PromptCounts, Reserved, Size } from './exchange.ts'
import { NOT_CACHED, recall, type RecallMiss } from './recall.ts'
import type { PromptCache, Services } from './services.ts'

export function plan(reserved: Reserved, services: Services): MaybePromise<Planned> {
  if (isSentUnchanged(reserved)) return planUnchanged(reserved)
  return chain(recall(reserved, services), (recalled) =>
    'replay' in recalled
      ? Object.assign(reserved, { plan: recalled.replay })
      : planPrompt(reserved, recalled, services),
  )
}

function planPrompt(reserved: Reserved, recalled: RecallMiss, services: Services): MaybePromise<Planned> {
  const shortened = shorten(reserved, recalled, services)
  const { promptCache } = services
  if (promptCache === undefined || !needsCacheMarkers(reserved)) return shortened
  return chain(shortened, (planned) => addCacheMarkers(planned, promptCache, services))
}

function shorten(reserved: Reserved, recalled: RecallMiss, services: Services): MaybePromise<Planned> {
  const { steering, size, resolved } = reserved
  const { model } = resolved.routes[0]
  if (services.waterfall.isTooSmall({ model, steering }, () => size.bound)) return planUnchanged(reserved, recalled)
  return optimize(reserved, recalled, services).catch((error: unknown) => {
    recalled.keeper.finish({ status: 500 })
    throw error
  })
}

/** Minimum length of a cacheable prefix, in tokens. No vendor caches shorter prefixes. */
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

async function addCacheMarkers(planned: Planned, promptCache: PromptCache, { observers }: Services): Promise<Planned> {
  const { plan, resolved, key, startedAt } = planned
  if (plan.kind === 'replay') return planned
  try {
    await plan.counts.prepare?.()
    const { model } = resolved.routes[0]
    const request = { prompt: plan.prompt, model, tokens: plan.counts.sent, owner: key.id, now: startedAt }
    const markedPrompt = await promptCache(request)
    if (markedPrompt !== undefined) planned.plan = { ...plan, prompt: markedPrompt.prompt, markedPrompt }
  } catch (cause) {
    observers.reportFailure('markers for the prompt cache could not be added', cause)
  }
  return planned
}

async function optimize(reserved: Reserved, { keeper, spent }: RecallMiss, services: Services): Promise<Planned> {
  const { prompt, resolved, size, steering, key, cancellation } = reserved
  const route = resolved.routes[0]
  if (size.mayContainLargeMedia) await (await import('./on-demand.ts')).digestMedia(prompt)
  await services.meter.prepare(prompt, cancellation.signal)
  const rewritten = await services.waterfall({
    prompt,
    modelName: resolved.name,
    model: route.model,
    tokens: size.estimate,
    steering,
    owner: key.id,
    small: services.smallModel(route),
    signal: cancellation.signal,
    now: services.runtime.now(),
  })
  const optimization = { ...rewritten, spent: add(rewritten.spent, spent) }
  const { rewrite } = optimization
  reserved.plan = {
    kind: 'upstream',
    prompt: rewrite?.prompt ?? prompt,
    optimization,
    counts: { original: optimization.tokens, sent: rewrite?.tokens ?? optimization.tokens },
    keeper,
    attempts: new Attempts(cancellation),
  }
  return reserved as Planned
}

/** True for compaction, background work, and conversations stored by the upstream. */
export function isSentUnchanged({ prompt, format }: Pick<Reserved, 'prompt' | 'format'>): boolean {
  const { value } = prompt.native
  if (value['thread'] !== undefined || prompt.operation !== undefined) return true
  return format.turns !== undefined && (value['background'] === true || format.turns.refersToUpstream(prompt))
}

/** The tokens of an unchanged prompt are counted only if the bill needs them. */
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
