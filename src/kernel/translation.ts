import { createPause } from '../core/async.ts'
import type { Route } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { type PortablePrompt, type PortableTarget, portableInSteps, portablePrompt } from '../formats/portable.ts'
import { runWithPauses } from '../core/steps.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import { supportsDialect } from '../upstream/attempts.ts'
import type { Planned, UpstreamPlan } from './exchange.ts'
import type { Services } from './services.ts'
import { rejectsSampling } from './version-headers.ts'

export type Translate = (prompt: Prompt, route: Route) => PortablePrompt

/**
 * Returns a function that translates the prompt for a route. A long prompt is translated for the first route in short
 * steps.
 */
export async function createTranslation(
  planned: Planned,
  plan: UpstreamPlan,
  { policies }: Pick<Services, 'policies'>,
): Promise<Translate> {
  const targetOf = ({ provider, model }: Route): PortableTarget => ({
    dialect: provider.dialect,
    model: rejectsSampling(provider, planned.request) ? { ...model, rejectsSamplingParameters: true } : model,
    isLossy: policies.onUntranslatable === 'drop',
  })
  const translate: Translate = (prompt, route) => portablePrompt(prompt, targetOf(route))
  const [first] = planned.resolved.routes
  if (!planned.needsPauses || supportsDialect(first.provider, plan.prompt.native.dialect)) return translate
  const translated = await translateIfPossible(plan.prompt, targetOf(first))
  await yieldToEventLoop()
  return (prompt, route) => {
    const isFirst = prompt === plan.prompt && route.model === first.model && route.provider === first.provider
    return (isFirst ? translated : undefined) ?? translate(prompt, route)
  }
}

/** Returns undefined for a prompt that cannot be translated. The error is thrown when the route is called. */
async function translateIfPossible(prompt: Prompt, target: PortableTarget): Promise<PortablePrompt | undefined> {
  try {
    return await runWithPauses(portableInSteps(prompt, target), createPause(yieldToEventLoop))
  } catch {
    return undefined
  }
}
