import { NO_USAGE } from '../core/answer.ts'
import { costOf } from '../core/money.ts'
import type { Route } from '../core/ports.ts'
import type { SmallModel } from '../savings/models.ts'
import type { SmallModelOptions } from './ask-small-model.ts'

/**
 * Returns the small model of the same provider and family, or undefined if there is none. Prompts are never sent to
 * another family.
 */
export function smallModelFor(candidate: Route, options: SmallModelOptions): SmallModel | undefined {
  const { provider, model } = candidate
  const small = model.small === undefined ? undefined : provider.model(model.small)
  if (small === undefined || small.family !== model.family) return undefined
  return createSmallModel({ provider, model: small }, options)
}

/** The first question loads the module that asks it. */
export function createSmallModel(route: Route, options: SmallModelOptions): SmallModel {
  const { provider, model } = route
  return {
    name: `${provider.name}/${model.id}`,
    ask: async (question) => {
      const { askSmallModel } = await import('./ask-small-model.ts')
      return askSmallModel(question, route, options)
    },
    price: (promptTokens, outputTokens) =>
      costOf({ ...NO_USAGE, inputTokens: promptTokens, outputTokens }, model.price),
  }
}
