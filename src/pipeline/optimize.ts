import { sha256 } from '#hash'
import { digestWithPauses, longMediaDigests } from '../core/cache.ts'
import { add } from '../core/money.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import { Attempts } from '../upstream/attempts.ts'
import type { Planned, Reserved } from './exchange.ts'
import type { RecallMiss } from './exchange.ts'
import type { MarkPrompt, Services } from './services.ts'

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

/** Lets the savings tiers shorten the prompt. */
export async function optimize(
  reserved: Reserved,
  { keeper, spent }: RecallMiss,
  services: Services,
): Promise<Planned> {
  const { prompt, resolved, size, steering, key, cancellation } = reserved
  const route = resolved.routes[0]
  if (size.mayContainLargeMedia) await digestWithPauses(longMediaDigests(prompt, sha256), yieldToEventLoop)
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
