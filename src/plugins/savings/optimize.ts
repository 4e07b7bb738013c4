import { sha256 } from '#hash'
import { digestWithPauses, longMediaDigests } from '../../core/cache.ts'
import { add } from '../../core/money.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import type { Planned } from '../../kernel/exchange.ts'
import type { MarkPrompt, Services } from '../../kernel/services.ts'

export async function addCacheMarkers(
  planned: Planned,
  markPrompt: MarkPrompt,
  { observers }: Services,
): Promise<Planned> {
  const { plan, resolved, key, startedAt } = planned
  if (plan.kind === 'replay') return planned
  try {
    await plan.counts.prepare?.()
    const { model } = resolved.routes[0]
    const request = { prompt: plan.prompt, model, tokens: plan.counts.sent, owner: key.id, now: startedAt }
    const markedPrompt = await markPrompt(request)
    if (markedPrompt !== undefined) planned.plan = { ...plan, prompt: markedPrompt.prompt, markedPrompt }
  } catch (cause) {
    observers.reportFailure('markers for the prompt cache could not be added', cause)
  }
  return planned
}

/** Lets the savings tiers shorten a prompt that is planned to be sent unchanged. */
export async function optimize(planned: Planned, services: Services): Promise<Planned> {
  const { plan, prompt, resolved, size, steering, key, cancellation } = planned
  if (plan.kind === 'replay') return planned
  const route = resolved.routes[0]
  if (size.mayContainLargeMedia) await digestWithPauses(longMediaDigests(prompt, sha256), yieldToEventLoop)
  const request = {
    prompt,
    modelName: resolved.name,
    model: route.model,
    steering,
    owner: key.id,
    small: services.smallModel(route),
    signal: cancellation.signal,
    now: services.runtime.now(),
  }
  const passed = await services.waterfall.passUnchanged(request, size.bound)
  if (passed !== undefined) {
    Object.assign(plan.optimization, passed)
    return planned
  }
  await services.meter.prepare(prompt, cancellation.signal)
  const rewritten = await services.waterfall({ ...request, tokens: size.estimate })
  const { rewrite, tokens, spent } = rewritten
  planned.plan = {
    ...plan,
    prompt: rewrite?.prompt ?? prompt,
    optimization: { ...rewritten, spent: add(spent, plan.optimization.spent) },
    counts: { original: tokens, sent: rewrite?.tokens ?? tokens },
  }
  return planned
}
