import { GatewayError } from '../core/errors.ts'
import { isSafeModelName } from '../core/model.ts'
import { mayUse } from '../governance/access.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { weighProviders } from '../governance/weights.ts'
import type { Resolve } from './services.ts'
import type { Resolved, Route } from './request-values.ts'

/** Finds the route of a whole name: an alias, or `<provider>/<model_id>`. */
export type FindRoute = (name: string) => Route | undefined

/**
 * A whole name leads to one route. A name without a provider leads to the key's own providers: one drawn by weight
 * first, the others as its fallbacks.
 */
export function createResolve(find: FindRoute, random: () => number): Resolve {
  return (name, key) => {
    if (!isSafeModelName(name)) throw unusable()
    const route = find(name)
    if (route !== undefined) return { name, routes: [route] }
    return weighed(name, key, find, random) ?? unknown(name)
  }
}

function weighed(name: string, key: VirtualKey, find: FindRoute, random: () => number): Resolved | undefined {
  if (key.providers.some((config) => name.startsWith(`${config.provider}/`))) return undefined
  const names = weighProviders(key.providers, name, random).map((config) => `${config.provider}/${name}`)
  const permitted = names.filter((whole) => mayUse(key, name, [whole]))
  const routes = (permitted.length > 0 ? permitted : names).flatMap((whole) => find(whole) ?? [])
  const [first, ...others] = routes
  return first === undefined ? undefined : { name, routes: [first, ...others] }
}

function unusable(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'model is not a model name: expected <provider>/<model_id> in at most 200 letters, digits and . _ : @ + - /.',
    { param: 'model' },
  )
}

function unknown(name: string): never {
  const hint = name.includes('/') ? '' : ' Write it as <provider>/<model_id>, such as openai/gpt-5-mini.'
  throw new GatewayError(
    'invalid-model',
    `There is no model ${name.slice(0, 100)} here.${hint} GET /v1/models lists those there are.`,
    { param: 'model' },
  )
}
