import type { Route, SmallModel } from '../core/ports.ts'
import { costOf, NO_USAGE } from '../core/money.ts'
import type { SmallModelOptions } from './internal-calls.ts'

/** Returns undefined if `Model.small` does not name a model of the same family. */
export function smallModelFor(candidate: Route, options: SmallModelOptions): SmallModel | undefined {
  const { provider, model } = candidate
  const small = model.small === undefined ? undefined : provider.model(model.small)
  if (small === undefined || small.family !== model.family) return undefined
  if (options.caller?.payer === 'customer' && provider.usesCallerKeys !== true) return undefined
  const route = { provider, model: small }
  return {
    name: `${provider.name}/${small.id}`,
    ask: async (question) => {
      const { askSmallModel } = await import('./internal-calls.ts')
      return askSmallModel(question, route, options)
    },
    price: (inputTokens, outputTokens) => costOf({ ...NO_USAGE, inputTokens, outputTokens }, small.price),
  }
}
