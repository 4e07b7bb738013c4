/** Loaded with the first prompt that is long enough for a tier or for markers. */
import { sha256 } from '#hash'
import { digestWithPauses, longMediaDigests } from '../../core/cache.ts'
import { add } from '../../core/money.ts'
import type { Reserved, UpstreamPlan } from '../../kernel/exchange.ts'
import type { Services } from '../../kernel/services.ts'
import { smallModelOf } from '../../kernel/small-model.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import type { CacheableRequest, MarkedPrompt } from './prompt-cache.ts'
import type { Steering, Waterfall } from './tier.ts'

// All code of the tiers is loaded together.
export { createMemory, createShadow, createWaterfall, markForCache, purgeMemory } from './waterfall.ts'

/** Adds markers for the vendor's prompt cache. */
export async function addCacheMarkers(
  { resolved, caller, startedAt }: Reserved,
  plan: UpstreamPlan,
  markPrompt: (request: CacheableRequest) => Promise<MarkedPrompt | undefined>,
  { log }: Pick<Services, 'log'>,
): Promise<UpstreamPlan> {
  try {
    await plan.counts.prepareCounts?.()
    const { model } = resolved.routes[0]
    const request = { prompt: plan.prompt, model, tokens: plan.counts.sent, owner: caller.scope, now: startedAt }
    const marked = await markPrompt(request)
    if (marked === undefined) return plan
    const { prompt, markerCount: count, report } = marked
    return { ...plan, prompt, markers: { count, report } }
  } catch (cause) {
    log.failure('markers for the prompt cache could not be added', cause)
    return plan
  }
}

interface Optimizer {
  readonly waterfall: Waterfall
  readonly steering: Steering
}

/** Lets the savings tiers shorten a prompt that is planned to be sent unchanged. */
export async function optimize(
  reserved: Reserved,
  plan: UpstreamPlan,
  { waterfall, steering }: Optimizer,
  services: Services,
): Promise<UpstreamPlan> {
  const { prompt, resolved, size, caller, cancellation } = reserved
  const route = resolved.routes[0]
  if (size.mayContainLargeMedia) await digestWithPauses(longMediaDigests(prompt, sha256), yieldToEventLoop)
  const request = {
    prompt,
    modelName: resolved.name,
    model: route.model,
    steering,
    owner: caller.scope,
    small: smallModelOf(reserved, route, services),
    signal: cancellation.signal,
    now: services.runtime.now(),
  }
  const passed = await waterfall.passUnchanged(request, size.bound)
  if (passed !== undefined) {
    Object.assign(plan.optimization, passed)
    return plan
  }
  await services.meter.cacheEstimates(prompt, cancellation.signal)
  const rewritten = await waterfall({ ...request, tokens: size.estimate })
  const { rewrite, tokens, spent } = rewritten
  return {
    ...plan,
    prompt: rewrite?.prompt ?? prompt,
    optimization: {
      ...rewritten,
      spent: add(spent, plan.optimization.spent),
      ...(steering.force === true && { isForced: true }),
    },
    counts: { original: tokens, sent: rewrite?.tokens ?? tokens },
  }
}
