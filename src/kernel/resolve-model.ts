import { editDistance } from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import type { Route } from '../core/ports.ts'
import { isSafeModelName, type Prompt } from '../core/prompt.ts'
import { modelNameError } from '../formats/parse-body.ts'
import { mayUse, orderProviders, type VirtualKey } from '../governance/virtual-key.ts'
import { supportsDialect } from '../upstream/attempts.ts'
import type { ResolvedModel } from './exchange.ts'
import type { Resolve } from './services.ts'

interface ModelLookup {
  /** Returns the route for an alias or for a name of the form `<provider>/<model_id>`. */
  resolve(name: string): Route | undefined
  /** Returns the routes for a name without a provider, in the order in which they are attempted. */
  routesFor(id: string): readonly Route[]
  list(): readonly (Route & { readonly name: string })[]
}

export function createResolve(models: ModelLookup, random: () => number): Resolve {
  return (name, key) => {
    const route = models.resolve(name)
    if (route !== undefined) return { name, routes: [route] }
    if (!isSafeModelName(name)) throw modelNameError()
    const resolved =
      key.providers.length > 0
        ? weightedRoutes(name, key, models, random)
        : permittedRoutes(name, key, models.routesFor(name))
    if (resolved !== undefined) return resolved
    throw unknownModel(name, nearMisses(name, key, models))
  }
}

/** Returns all routes if the key may use none of them, because `checkAccess` then rejects the request. */
function permittedRoutes(name: string, key: VirtualKey, routes: readonly Route[]): ResolvedModel | undefined {
  const usable = routes.filter((route) => mayUse(key, name, [routeName(route)]))
  return toResolvedModel(name, usable.length > 0 ? usable : routes)
}

function weightedRoutes(
  name: string,
  key: VirtualKey,
  models: ModelLookup,
  random: () => number,
): ResolvedModel | undefined {
  if (key.providers.some((config) => name.startsWith(`${config.provider}/`))) return undefined
  const names = orderProviders(key.providers, name, random).map((config) => `${config.provider}/${name}`)
  const permitted = names.filter((fullName) => mayUse(key, name, [fullName]))
  const routes = (permitted.length > 0 ? permitted : names).flatMap((fullName) => models.resolve(fullName) ?? [])
  return toResolvedModel(name, routes)
}

export function routeName({ provider, model }: Route): string {
  return `${provider.name}/${model.id}`
}

export function toResolvedModel(name: string, [first, ...others]: readonly Route[]): ResolvedModel | undefined {
  return first === undefined ? undefined : { name, routes: [first, ...others] }
}

const MAX_SHOWN_LENGTH = 100
const MAX_SUGGESTIONS = 3
const MAX_COMPARED_LENGTH = 80

function nearMisses(name: string, key: VirtualKey, models: ModelLookup): readonly string[] {
  if (name.length > MAX_COMPARED_LENGTH) return []
  const lowerCase = name.toLowerCase()
  const maxDistance = Math.max(2, Math.floor(lowerCase.length / 3))
  const distanceTo = (candidate: string): number =>
    Math.abs(candidate.length - lowerCase.length) > maxDistance
      ? maxDistance + 1
      : editDistance(candidate.toLowerCase(), lowerCase)
  const near = models.list().flatMap(({ name: fullName, ...route }) => {
    const distance = Math.min(distanceTo(fullName), distanceTo(fullName.slice(fullName.indexOf('/') + 1)))
    return distance <= maxDistance && mayUse(key, fullName, [routeName(route)]) ? [{ fullName, distance }] : []
  })
  return near
    .toSorted((a, b) => a.distance - b.distance)
    .slice(0, MAX_SUGGESTIONS)
    .map(({ fullName }) => fullName)
}

function unknownModel(name: string, near: readonly string[]): GatewayError {
  const hint = near.length === 0 ? '' : ` Did you mean ${near.join(' or ')}?`
  return new GatewayError(
    'invalid-model',
    `There is no model ${name.slice(0, MAX_SHOWN_LENGTH)} for this key.${hint} GET /v1/models lists the models of this key.`,
    { param: 'model' },
  )
}

export function answeringRoutes(resolved: ResolvedModel): ResolvedModel {
  return restrictTo(resolved, ({ model }) => model.kind !== 'embedding', CANNOT_ANSWER)
}

export function routesForOperation(resolved: ResolvedModel, { operation, native }: Prompt): ResolvedModel {
  if (operation === undefined) return resolved
  return restrictTo(resolved, ({ provider }) => supportsDialect(provider, native.dialect), CANNOT_COMPACT)
}

const CANNOT_COMPACT = 'cannot compact conversations. Choose a model from a provider that supports the responses format'
const CANNOT_ANSWER =
  'is an embedding model and cannot answer prompts. Use it with POST /v1/embeddings, or choose another model'

export function restrictTo(resolved: ResolvedModel, fits: (route: Route) => boolean, problem: string): ResolvedModel {
  const { name, routes } = resolved
  if (routes.every(fits)) return resolved
  const restricted = toResolvedModel(name, routes.filter(fits))
  if (restricted !== undefined) return restricted
  throw new GatewayError('invalid-request', `The model ${name.slice(0, MAX_SHOWN_LENGTH)} ${problem}.`, {
    param: 'model',
    code: 'invalid_model',
  })
}
