import type { ResponseSource, StreamChunk } from '../core/completion.ts'
import { isResponseSource } from '../upstream/attempts.ts'
import { closeIterator } from '../core/async.ts'
import {
  checkFlag,
  checkOptions,
  expects,
  fieldsOf,
  firstProblem,
  listOf,
  matching,
  type OptionCheck,
  optionsOf,
} from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import { isSafeModelName, splitModelName, stemOf } from '../core/prompt.ts'
import type { Provider, Route, Model } from '../core/ports.ts'
import { callWithDeadline, type RequestCall } from './http-request.ts'
import anthropic from './models/anthropic.json' with { type: 'json' }
import {
  checkModelEntry,
  checkModelId,
  checkNonEmpty,
  checkPrice,
  checkProviderName,
  checkSampling,
  checkThresholdFactor,
  checkTokenCount,
  optionError,
  type ModelEntry,
} from './provider-options.ts'
import { completeModel, PRICE_REMEDY } from './vendor.ts'

/** Another name for a model, with its own settings and limits. */
export interface CatalogAlias {
  /** The name in requests. May contain slashes. Takes precedence over a model with the same name. */
  readonly id: string
  /** `<provider>/<model_id>`. */
  readonly target: string
  readonly displayName?: string
  /** Larger values are reduced to that of the target. @default the context window of the target */
  readonly contextWindowTokens?: number
  /** Larger values are reduced to that of the target and to `contextWindowTokens`. @default the maximum of the target */
  readonly maxOutputTokens?: number
  /** Default values of parameters. Ignored if the target rejects them. @default those of the target */
  readonly defaults?: NonNullable<Model['defaults']>
  /** Factor for the thresholds of the automatic tiers. @default the factor of the target */
  readonly thresholdFactor?: number
  /** Overrides `cache.similar` for requests to the alias. @default the setting of the cache */
  readonly cacheSimilar?: boolean
}

/** Models and aliases in addition to those of the providers. */
export interface CatalogOptions {
  /**
   * Models with ids of the form `<provider>/<model_id>`. Their fields override those of the provider. A price is
   * required for a model that the provider does not serve.
   */
  readonly models?: readonly ModelEntry[]
  /** Aliases in addition to the built-in ones. An alias replaces a built-in alias of the same name. */
  readonly aliases?: readonly CatalogAlias[]
}

/** The model has the settings and limits of the alias, if any. */
export interface CatalogRoute extends Route {
  readonly name: string
}

export interface ModelDirectory {
  resolve(name: string): CatalogRoute | undefined
  routesFor(id: string): readonly CatalogRoute[]
  provider(name: string): Provider | undefined
  list(): readonly CatalogRoute[]
}

const checkAlias = optionsOf(
  {
    id: matching(/^[\w.:@+/-]{1,200}$/, '1 to 200 letters, digits and . : @ + / _ -'),
    target: firstProblem(
      checkModelId,
      expects('<provider>/<model_id>', (name) => splitModelName(String(name)) !== undefined),
    ),
    displayName: checkNonEmpty,
    contextWindowTokens: checkTokenCount,
    maxOutputTokens: checkTokenCount,
    defaults: checkSampling,
    thresholdFactor: checkThresholdFactor,
    cacheSimilar: checkFlag,
  } satisfies Record<keyof CatalogAlias, OptionCheck>,
  ['id', 'target'],
)

/** The models of a custom provider or price list are checked nowhere else. A wrong price would make requests free. */
const checkProvider = fieldsOf(
  {
    name: checkProviderName,
    models: listOf('a list of models', fieldsOf({ price: checkPrice }, ['price'], 'a model')),
  },
  ['name', 'models'],
  'a provider, such as openai()',
)

const checkDirectory = optionsOf({
  catalog: optionsOf({
    models: listOf('a list of models', checkModelEntry),
    aliases: listOf('a list of aliases', checkAlias),
  } satisfies Record<keyof CatalogOptions, OptionCheck>),
  providers: listOf('a list of providers', checkProvider),
})

export function createModelDirectory(options: {
  readonly providers: readonly Provider[]
  readonly catalog?: CatalogOptions | undefined
}): ModelDirectory {
  checkOptions('createGateway', options, checkDirectory)
  const { catalog = {} } = options
  const providers = providersByName(options.providers)
  const configured = configuredModels(catalog.models ?? [], providers)
  const configuredByStem = undatedModels(configured)
  /** Without this, `-latest` or a date would select the price that `catalog.models` replaces. */
  const findUnlisted = (name: string, id: string, provider: Provider): Model | undefined => {
    const model = provider.model(id)
    const undated = configuredByStem.get(stemOf(name))
    if (undated === undefined) return model
    const hasOwnPrice = model !== undefined && model.price !== provider.model(undated.id)?.price
    return hasOwnPrice ? model : { ...undated, id }
  }
  const find = (name: string): CatalogRoute | undefined => {
    const modelName = splitModelName(name)
    const provider = modelName && providers.get(modelName.provider)
    if (modelName === undefined || provider === undefined) return undefined
    const { id } = modelName
    const hasConfigured = configuredByStem.size > 0
    const model = configured.get(name) ?? (hasConfigured ? findUnlisted(name, id, provider) : provider.model(id))
    return model && { name, provider, model }
  }
  const aliases = aliasRoutes(catalog.aliases ?? [], find)
  return {
    resolve: (name) => (isSafeModelName(name) ? (aliases.get(name) ?? find(name)) : undefined),
    routesFor(id) {
      // A name with a provider refers only to that provider.
      if (!isSafeModelName(id) || providers.has(splitModelName(id)?.provider ?? '')) return []
      const routesOf = (isMatch: (provider: Provider) => boolean): readonly CatalogRoute[] =>
        options.providers.filter(isMatch).flatMap(({ name }) => find(`${name}/${id}`) ?? [])
      const listed = routesOf(
        ({ name, models }) => configured.has(`${name}/${id}`) || models.some((model) => model.id === id),
      )
      if (listed.length > 0) return listed
      const stem = stemOf(id)
      const withSameStem = routesOf(({ models }) => models.some((model) => stemOf(model.id) === stem))
      return withSameStem.length > 0 ? withSameStem : routesOf(() => true).slice(0, 1)
    },
    provider: (name) => providers.get(name),
    list() {
      const names = options.providers.flatMap((provider) =>
        provider.models.map((model) => `${provider.name}/${model.id}`),
      )
      const routes = [...new Set([...names, ...configured.keys()])].flatMap((name) => find(name) ?? [])
      return [...routes, ...aliases.values()]
    },
  }
}

function providersByName(providers: readonly Provider[]): ReadonlyMap<string, Provider> {
  const named = new Map<string, Provider>()
  for (const [index, provider] of providers.entries()) {
    const { name } = provider
    if (named.has(name)) {
      throw catalogError(`providers[${index}]: the name "${name}" is used by another provider. Set a different name`)
    }
    named.set(name, enforceDeadlines(provider))
  }
  return named
}

function configuredModels(
  entries: readonly ModelEntry[],
  providers: ReadonlyMap<string, Provider>,
): ReadonlyMap<string, Model> {
  const configured = new Map<string, Model>()
  for (const [index, entry] of entries.entries()) {
    const modelName = splitModelName(entry.id)
    const provider = modelName && providers.get(modelName.provider)
    if (modelName === undefined || provider === undefined) {
      throw catalogError(
        `catalog.models[${index}].id: expected <provider>/<model_id> of a configured provider, got "${entry.id}"`,
      )
    }
    const { id } = modelName
    const model = completeModel({ ...entry, id }, provider.model(id), provider.name)
    if (model === undefined)
      throw catalogError(`catalog.models[${index}]: the model "${entry.id}" has no price. ${PRICE_REMEDY}`)
    configured.set(entry.id, model)
  }
  return configured
}

function undatedModels(configured: ReadonlyMap<string, Model>): ReadonlyMap<string, Model> {
  return new Map([...configured].filter(([name]) => name === stemOf(name)))
}

function aliasRoutes(
  configured: readonly CatalogAlias[],
  find: (name: string) => CatalogRoute | undefined,
): ReadonlyMap<string, CatalogRoute> {
  const routes = new Map<string, CatalogRoute>()
  const addRoute = (alias: CatalogAlias): boolean => {
    const route = find(alias.target)
    if (route === undefined) return false
    routes.set(alias.id, { name: alias.id, provider: route.provider, model: applyAlias(alias, route.model) })
    return true
  }
  const configuredIds = new Set(configured.map((alias) => alias.id))
  for (const alias of anthropic.aliases) if (!configuredIds.has(alias.id)) addRoute(alias)
  for (const [index, alias] of configured.entries()) {
    if (routes.has(alias.id))
      throw catalogError(
        `catalog.aliases[${index}]: the alias "${alias.id}" is listed twice. Remove one of the entries`,
      )
    if (addRoute(alias)) continue
    throw catalogError(
      `catalog.aliases[${index}].target: no configured provider serves "${alias.target}". Choose another model, or configure its provider`,
    )
  }
  return routes
}

function catalogError(problem: string): GatewayError {
  return optionError('createGateway', problem)
}

/** If the target rejects sampling parameters, the alias sets none, because calls would otherwise fail. */
function applyAlias(alias: CatalogAlias, model: Model): Model {
  const { displayName = alias.id, contextWindowTokens, maxOutputTokens, thresholdFactor, cacheSimilar } = alias
  const defaults = model.rejectsSamplingParameters === true ? undefined : alias.defaults
  const window = Math.min(contextWindowTokens ?? model.contextWindowTokens, model.contextWindowTokens)
  return {
    ...model,
    ...(defaults !== undefined && { defaults }),
    ...(thresholdFactor !== undefined && { thresholdFactor }),
    ...(cacheSimilar !== undefined && { cacheSimilar }),
    displayName,
    contextWindowTokens: window,
    ...(window < model.contextWindowTokens && {
      upstreamWindowTokens: model.upstreamWindowTokens ?? model.contextWindowTokens,
    }),
    maxOutputTokens: Math.min(maxOutputTokens ?? model.maxOutputTokens, model.maxOutputTokens, window),
  }
}

/** A custom provider may ignore its signal and timeouts. The reservation of an endless call would never be settled. */
function enforceDeadlines(provider: Provider): Provider {
  if (provider.endsCalls === true) return provider
  const { name, dialect, secondDialect, embed, countTokens, storedResponse, passThrough, ping } = provider
  const { varyHeaders, usesCallerKeys } = provider
  const addDeadline =
    <C extends RequestCall, T>(method: (call: C) => Promise<T>, discard?: (value: T) => void) =>
    (call: C): Promise<T> =>
      callWithDeadline(name, call, async () => method.call(provider, call), discard)
  return {
    name,
    dialect,
    ...(secondDialect !== undefined && { secondDialect }),
    ...(varyHeaders !== undefined && { varyHeaders }),
    ...(usesCallerKeys !== undefined && { usesCallerKeys }),
    get models() {
      return provider.models
    },
    model: (id) => {
      const model = provider.model(id)
      return model && (checkPrice(model.price, '') === undefined ? model : throwInvalidPrice(name, id))
    },
    complete: addDeadline((call) => provider.complete(call)),
    stream: addDeadline(
      (call) => provider.stream(call),
      ({ response }) => discardStream(response),
    ),
    ...(embed !== undefined && { embed: addDeadline(embed) }),
    ...(countTokens !== undefined && { countTokens: addDeadline(countTokens) }),
    ...(storedResponse !== undefined && { storedResponse: addDeadline(storedResponse) }),
    ...(passThrough !== undefined && { passThrough: addDeadline(passThrough, ({ source }) => source.abort()) }),
    ...(ping !== undefined && { ping: (call) => ping.call(provider, call) }),
  }
}

function throwInvalidPrice(provider: string, id: string): never {
  const cause = new Error(`The price of ${provider}/${id} is not in dollars per million tokens.`)
  throw new GatewayError('internal', 'The model has no valid price. Contact the operator of the gateway.', { cause })
}

function discardStream(response: AsyncIterable<StreamChunk> | ResponseSource): void {
  try {
    if (isResponseSource(response)) response.abort()
    else closeIterator(response[Symbol.asyncIterator]())
  } catch {
    // The request has already failed.
  }
}
