import { isPromise, type MaybePromise } from '../core/async.ts'
import { type NanoUsd, ZERO } from '../core/money.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import { Attempts } from '../upstream/attempts.ts'
import type { Planned, Reserved, UpstreamPlan } from './exchange.ts'
import type { Services } from './services.ts'
import type { Size } from './measure.ts'
import type { RecallMiss, RecallResult } from './lookup.ts'
import type { Optimization, PromptCounts } from './optimization.ts'

type PlanOf = Pick<Planned, 'plan'>

export function plan(reserved: Reserved, services: Services): MaybePromise<PlanOf> {
  const recalled = services.hooks.onLookup.length === 0 ? NOT_FOUND : lookUp(reserved, services)
  return isPromise(recalled)
    ? recalled.then((result) => planRecalled(reserved, result, services))
    : planRecalled(reserved, recalled, services)
}

/** Calls the hooks synchronously until one of them returns a promise. */
function lookUp(reserved: Reserved, services: Services, first: number = 0): MaybePromise<RecallResult> {
  const { onLookup } = services.hooks
  for (let index = first; index < onLookup.length; index++) {
    const result = onLookup[index]?.(reserved, services)
    if (isPromise(result)) return result.then((found) => found ?? lookUp(reserved, services, index + 1))
    if (result !== undefined) return result
  }
  return NOT_FOUND
}

function planRecalled(reserved: Reserved, recalled: RecallResult, services: Services): MaybePromise<PlanOf> {
  if ('replay' in recalled) return { plan: recalled.replay }
  if ('recalling' in recalled) {
    const planning = recalled.recalling.then(async (late) =>
      Object.assign(reserved, await planRecalled(reserved, late, services)),
    )
    // `callUpstream` handles the error.
    planning.catch(() => {})
    return { plan: { ...planUnchanged(reserved, MAY_BE_SHARED), planning } }
  }
  if (!reserved.needsPauses) return planPrompt(reserved, recalled, services)
  return yieldToEventLoop().then(() => planPrompt(reserved, recalled, services))
}

function planPrompt(reserved: Reserved, recalled: RecallMiss, services: Services): MaybePromise<PlanOf> {
  if (isSentUnchanged(reserved)) return { plan: planUnchanged(reserved, recalled) }
  const unchanged = planUnchanged(reserved, recalled)
  // Set before the result of the stage, for the bill and the followers of a request that ends while its prompt is
  // transformed.
  reserved.plan = unchanged
  const transformed = optimizePrompt(reserved, unchanged, services)
  return isPromise(transformed) ? transformed.then((changed) => ({ plan: changed })) : { plan: transformed }
}

function optimizePrompt(
  reserved: Reserved,
  unchanged: UpstreamPlan,
  services: Services,
  first: number = 0,
): MaybePromise<UpstreamPlan> {
  let current = unchanged
  const hooks = services.hooks.optimizePrompt
  for (let index = first; index < hooks.length; index++) {
    const result = hooks[index]?.(reserved, current, services)
    const before = current
    if (isPromise(result)) {
      return result.then((changed) => optimizePrompt(reserved, changed ?? before, services, index + 1))
    }
    current = result ?? current
  }
  return current
}

/** True for compaction, background work, and conversations stored by the upstream. */
export function isSentUnchanged({ prompt, format }: Pick<Reserved, 'prompt' | 'format'>): boolean {
  const { value } = prompt.native
  if (value['thread'] !== undefined || prompt.operation !== undefined) return true
  return format.turns !== undefined && (value['background'] === true || format.turns.refersToUpstream(prompt))
}

export function planUnchanged(
  { prompt, size, cancellation }: Pick<Reserved, 'prompt' | 'size' | 'cancellation'>,
  { keeper, spent }: RecallMiss = NOT_FOUND,
): UpstreamPlan {
  const optimization = new UnchangedPrompt(size, spent)
  const attempts = new Attempts(cancellation)
  return { kind: 'upstream', prompt, optimization, counts: optimization, keeper, attempts }
}

class UnchangedPrompt implements Optimization, PromptCounts {
  readonly spent: NanoUsd
  readonly verdicts: Optimization['verdicts'] = []
  readonly #size: Size

  constructor(size: Size, spent: NanoUsd) {
    this.#size = size
    this.spent = spent
  }

  prepareCounts(): MaybePromise<void> {
    return this.#size.prepareEstimate()
  }

  get original(): number {
    return this.#size.estimate
  }

  get sent(): number {
    return this.#size.estimate
  }
}

const NOT_FOUND: RecallMiss = { keeper: { finish: () => {} }, spent: ZERO }
/** The stream is stored, because the request may still become one that others follow. */
const MAY_BE_SHARED: RecallMiss = { keeper: { finish: () => {}, share: () => {} }, spent: ZERO }
