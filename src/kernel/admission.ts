import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { editDistance, GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'
import type { Route } from '../core/ports.ts'
import { isSafeModelName, type Prompt } from '../core/prompt.ts'
import { modelNameError } from '../formats/parse-body.ts'
import { mayUse, orderProviders, outputLimit, type VirtualKey } from '../governance/virtual-key.ts'
import type { RateStatus } from '../governance/limits.ts'
import { createQuote, type Quote, type QuoteCandidate, type WaitForStore } from '../governance/reservation.ts'
import { supportsDialect } from '../upstream/attempts.ts'
import {
  type Authenticated,
  type Exchange,
  type Parsed,
  type Reserved,
  type ResolvedModel,
  waitForStore,
} from './exchange.ts'
import type { Resolve, Services } from './services.ts'

const KEY_HEADERS = ['x-bf-vk', 'x-api-key'] as const

export function authenticate(exchange: Exchange, services: Services): MaybePromise<Authenticated> {
  return chain(waitForStore(exchange, findCallerKey(exchange.request, services), services), (key) => {
    exchange.key = key
    return exchange as Authenticated
  })
}

export function findCallerKey(
  request: Pick<HttpRequest, 'header'>,
  { findKey, runtime }: Pick<Services, 'findKey' | 'runtime'>,
): MaybePromise<VirtualKey> {
  const secret = readSecret(request)
  if (secret === undefined) {
    throw new GatewayError(
      'unauthenticated',
      'The request has no key. Send one as Authorization: Bearer, x-api-key or x-bf-vk.',
    )
  }
  return chain(findKey(secret), (key) => checkValid(key, runtime.now()))
}

export function checkValid(key: VirtualKey | undefined, now: number): VirtualKey {
  if (key !== undefined && key.active && (key.expiresAt === undefined || now < key.expiresAt)) return key
  throw new GatewayError(
    'unauthenticated',
    'The key is unknown, inactive or expired. Check the key, or ask the operator of the gateway for a new one.',
  )
}

/** Throws 401 for two different secrets, because it would be unclear which key to use. */
function readSecret(request: Pick<HttpRequest, 'header'>): string | undefined {
  let secret = readBearer(request)
  for (const name of KEY_HEADERS) {
    const value = request.header(name)
    if (value === undefined || value === '') continue
    const candidate = value.trim()
    if (secret !== undefined && candidate !== secret) throw conflictingKeys()
    secret = candidate
  }
  return secret
}

function conflictingKeys(): GatewayError {
  return new GatewayError(
    'unauthenticated',
    'The request contains two different keys. Send the key once, as x-bf-vk, x-api-key or Authorization: Bearer.',
  )
}

export function readBearer(request: Pick<HttpRequest, 'header'>): string | undefined {
  const value = request.header('authorization')
  if (value === undefined || value.slice(0, 7).toLowerCase() !== 'bearer ') return undefined
  const token = value.slice(7).trim()
  return token === '' ? undefined : token
}

export async function rateStatusOfCaller(
  request: Pick<HttpRequest, 'header'>,
  services: Pick<Services, 'findKey' | 'ledger' | 'runtime'>,
): Promise<RateStatus> {
  try {
    return await services.ledger.status(await findCallerKey(request, services))
  } catch {
    return services.ledger.status(undefined)
  }
}

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

export function embeddingRoutes(resolved: ResolvedModel): ResolvedModel {
  return restrictTo(
    resolved,
    ({ model, provider }) => model.kind !== 'chat' && provider.embed !== undefined,
    CANNOT_EMBED,
  )
}

export function routesForOperation(resolved: ResolvedModel, { operation, native }: Prompt): ResolvedModel {
  if (operation === undefined) return resolved
  return restrictTo(resolved, ({ provider }) => supportsDialect(provider, native.dialect), CANNOT_COMPACT)
}

const CANNOT_COMPACT = 'cannot compact conversations. Choose a model from a provider that supports the responses format'
const CANNOT_ANSWER =
  'is an embedding model and cannot answer prompts. Use it with POST /v1/embeddings, or choose another model'
const CANNOT_EMBED = 'does not support embeddings. Choose an embedding model, such as openai/text-embedding-3-small'

function restrictTo(resolved: ResolvedModel, fits: (route: Route) => boolean, problem: string): ResolvedModel {
  const { name, routes } = resolved
  if (routes.every(fits)) return resolved
  const restricted = toResolvedModel(name, routes.filter(fits))
  if (restricted !== undefined) return restricted
  throw new GatewayError('invalid-request', `The model ${name.slice(0, MAX_SHOWN_LENGTH)} ${problem}.`, {
    param: 'model',
    code: 'invalid_model',
  })
}

export function reserve(parsed: Parsed, services: Services): MaybePromise<Reserved> {
  const { resolved, size } = parsed
  // If a prompt may exceed a model's context window, its worst-case cost depends on the estimate.
  const prepared = resolved.routes.some((route) => size.needsEstimate(route)) ? size.prepare() : undefined
  return isPromise(prepared) ? prepared.then(() => reserveQuote(parsed, services)) : reserveQuote(parsed, services)
}

function reserveQuote(parsed: Parsed, services: Services): MaybePromise<Reserved> {
  const wait: WaitForStore = (pending) => waitForStore(parsed, pending, services)
  return chain(services.ledger.reserve(parsed.key, quote(parsed), wait), (reservation) => {
    parsed.reservation = reservation
    return parsed as Reserved
  })
}

/** Adds a route for each other model that the provider of a route may call. */
function withOtherModels(routes: readonly Route[], otherModels: readonly string[]): readonly Route[] {
  return routes.flatMap((route) => {
    const models = otherModels.flatMap((id) => route.provider.model(id) ?? [])
    return [route, ...models.map((model) => ({ ...route, model }))]
  })
}

/** Returns the worst case over all routes, because a fallback must not cost more than the reserved amount. */
export function quote(parsed: Parsed, mayCallUpstream: boolean = true): Quote {
  const { prompt, resolved, size, margin, key } = parsed
  const { routes } = resolved
  const { otherModels } = size
  const candidateOf = (route: Route): QuoteCandidate => {
    const counter = size.counterFor(route)
    const cacheWrites = size.billedCacheWrites(route)
    const candidate = { model: route.model, promptTokens: size.tokensToReserve(route), cacheWrites }
    if (counter === undefined || (counter.callsUpstream && !mayCallUpstream)) return candidate
    return { ...candidate, count: counter.count, callsUpstream: counter.callsUpstream }
  }
  return createQuote({
    candidates: () => (otherModels === undefined ? routes : withOtherModels(routes, otherModels)).map(candidateOf),
    promptTokens: () => size.bound,
    countPrompt: () => size.count(),
    outputTokens: outputLimit(key, prompt, routes[0].model),
    extraOutputTokens: size.extraOutputTokens(routes[0].model),
    outputs: size.outputs,
    margin,
  })
}
