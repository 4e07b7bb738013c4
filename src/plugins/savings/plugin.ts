import { chain, type MaybePromise } from '../../core/async.ts'
import type { Model } from '../../core/ports.ts'
import type { Degradation } from '../../governance/caller.ts'
import type { Reserved, UpstreamPlan } from '../../kernel/exchange.ts'
import type { BuiltInPlugin, Services } from '../../kernel/services.ts'
import { createPromptMarker, createSavings, type SavingsDependencies } from './options.ts'
import type { MarkPrompt, SavingsOptions } from './options.ts'
import type { ShadowObserver } from './shadow.ts'
import { LEVELS, readSteeringHeaders, type Steering, type Waterfall } from './tier.ts'

/** How prompts are shortened and marked. */
export interface PromptSavings {
  readonly waterfall: Waterfall
  /** Absent if prompt cache markers are disabled. */
  readonly markPrompt?: MarkPrompt | undefined
}

/** Shortens long prompts, and adds markers for the vendor's prompt cache, where that saves money. */
export function savingsPlugin(
  options: false | SavingsOptions,
  dependencies: SavingsDependencies,
  observer: ShadowObserver,
): BuiltInPlugin {
  const checkHeaders: BuiltInPlugin['checkHeaders'] = (request) => void readSteeringHeaders(request)
  const purge: BuiltInPlugin['purge'] = async (scope, store) =>
    (await import('./optimize.ts')).purgeMemory(scope, store)
  if (options === false) return { checkHeaders, purge }
  const savings: PromptSavings = {
    waterfall: createSavings(options, dependencies, observer),
    markPrompt: createPromptMarker(options, dependencies),
  }
  return {
    checkHeaders,
    purge,
    optimizePrompt: (reserved, plan, services) => {
      const asked = reserved.isSteered ? readSteeringHeaders(reserved.request) : UNSTEERED
      const { degradation } = reserved.caller
      const steering = degradation === undefined ? asked : degraded(asked, degradation)
      if (!reserved.isDryRun) return shortenAndMark(reserved, plan, { ...savings, steering }, services)
      // A dry run has a memory of its own, which it must not share with later ones.
      return import('./dry-run.ts').then(({ createDryRun }) =>
        shortenAndMark(reserved, plan, { ...createDryRun(options, dependencies), steering }, services),
      )
    },
  }
}

const UNSTEERED: Steering = { vanishing: false, recursive: false }

/** Returns undefined for a prompt that is sent unchanged. */
export function shortenAndMark(
  reserved: Reserved,
  plan: UpstreamPlan,
  { waterfall, markPrompt, steering }: PromptSavings & { readonly steering: Steering },
  services: Services,
): MaybePromise<UpstreamPlan | undefined> {
  const { resolved, size } = reserved
  const { model } = resolved.routes[0]
  const isTooSmall = waterfall.isTooSmall({ model, steering }, () => size.bound)
  const marks =
    markPrompt !== undefined &&
    steering.level !== 'off' &&
    resolved.routes[0].provider.dialect === 'messages' &&
    mayBeMarked(reserved)
  if (isTooSmall && !marks) {
    return steering.level === 'off'
      ? { ...plan, optimization: { ...plan.optimization, skipReason: 'X-Savings-Level is off' } }
      : undefined
  }
  return import('./optimize.ts').then(({ addCacheMarkers, optimize }) => {
    const shortened = isTooSmall ? plan : optimize(reserved, plan, { waterfall, steering }, services)
    return marks ? chain(shortened, (shorter) => addCacheMarkers(reserved, shorter, markPrompt, services)) : shortened
  })
}

/** Minimum length of a cacheable prefix, in tokens. Some models require a longer one. */
const MIN_PREFIX_TOKENS = 1024

function mayBeMarked({ resolved, prompt, size }: Reserved): boolean {
  return (
    prompt.native.dialect !== 'responses' &&
    resolved.routes.every(({ provider, model }) => provider.dialect === 'messages' && hasMarkerPrice(model)) &&
    size.bound >= MIN_PREFIX_TOKENS
  )
}

function hasMarkerPrice({ price }: Model): boolean {
  return price.cacheWrite !== undefined && price.cacheRead !== undefined && price.cacheRead < price.input
}

/** A level that the caller chose is kept. */
function degraded(steering: Steering, degradation: Degradation): Steering {
  if (steering.level !== undefined) return steering
  const level = LEVELS.find((known) => known === degradation.savingsLevel())
  return level === undefined ? steering : { ...steering, level }
}
