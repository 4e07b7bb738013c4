import { GatewayError } from '../core/errors.ts'
import { speaks } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { Resolved, Route } from './request-values.ts'

/** The routes that can answer a prompt: 400 where the model only embeds. */
export function answeringRoutes(resolved: Resolved): Resolved {
  return only(resolved, ({ model }) => model.kind !== 'embedding', EMBEDS)
}

/** The routes that can embed: 400 where the model only answers, or no provider of it embeds. */
export function embeddingRoutes(resolved: Resolved): Resolved {
  return only(resolved, ({ model, provider }) => model.kind !== 'chat' && provider.embed !== undefined, ANSWERS)
}

/** The routes that know the prompt's operation: 400 where it is one of a format that the model's provider does not have. */
export function operatingRoutes(resolved: Resolved, { operation, native }: Prompt): Resolved {
  if (operation === undefined) return resolved
  return only(resolved, ({ provider }) => speaks(provider, native.dialect), CANNOT_COMPACT)
}

const CANNOT_COMPACT = 'cannot compact conversations. Choose a model of a provider with the responses format'
const EMBEDS = 'embeds texts and answers no prompts. Send it to POST /v1/embeddings, or choose another model'
const ANSWERS =
  'does not embed texts. Choose an embedding model, such as text-embedding-3-small of a provider that serves it'

function only(resolved: Resolved, fits: (route: Route) => boolean, problem: string): Resolved {
  const { name, routes } = resolved
  if (routes.every(fits)) return resolved
  const [first, ...others] = routes.filter(fits)
  if (first !== undefined) return { name, routes: [first, ...others] }
  throw new GatewayError('invalid-request', `The model ${name.slice(0, MAX_SHOWN)} ${problem}.`, {
    param: 'model',
    code: 'invalid_model',
  })
}

const MAX_SHOWN = 100
