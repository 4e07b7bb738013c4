import { listOf, objectWith, type OptionCheck } from '../core/check-options.ts'
import type { Price } from '../core/money.ts'
import type { Provider, Model, Route } from '../core/ports.ts'
import { stemOf } from '../core/prompt.ts'
import { fetchTransport } from '../http/transport-fetch.ts'
import {
  type HttpProviderOptions,
  httpProvider,
  recordSignedValues,
  secretsIn,
  withoutScheme,
} from './http-provider.ts'
import {
  type ApiKey,
  checkApiKey,
  checkBaseUrl,
  checkFetch,
  checkHeaders,
  checkModelEntry,
  checkPrice,
  checkProviderName,
  type Credentials,
  definedFields,
  type ModelEntry,
  optionError,
} from './provider-options.ts'

/** The options of every vendor. */
export interface VendorOptions {
  /** First part of `<provider>/<model_id>`. Set another name for a second account. @default the vendor's name */
  readonly name?: string | undefined
  /** The key, or a function that returns the key for each call. @default the vendor's environment variable, if any */
  readonly apiKey?: ApiKey | undefined
  /** @default the vendor's URL */
  readonly baseUrl?: string | undefined
  /** Models in addition to those in the catalog. Their fields override the catalog. @default none */
  readonly models?: readonly ModelEntry[]
  /** Overrides the prices in the catalog, and adds the vendor's models that appear only in the list. @default none */
  readonly prices?: PriceList
  /** Dollars per million tokens for all other models. @default 0 for local servers, otherwise none: not served */
  readonly defaultPrice?: Price
  /** Additional headers of each call. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /** Replaces the transport of the gateway. Called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

export const COMMON_CHECKS: Readonly<Record<Exclude<keyof VendorOptions, 'headers'>, OptionCheck>> = {
  name: checkProviderName,
  apiKey: checkApiKey,
  baseUrl: checkBaseUrl,
  models: listOf('a list of models', checkModelEntry),
  prices: objectWith('the result of priceList()', ['applyTo']),
  defaultPrice: checkPrice,
  fetch: checkFetch,
}

export const VENDOR_CHECKS: Readonly<Record<keyof VendorOptions, OptionCheck>> = {
  ...COMMON_CHECKS,
  headers: checkHeaders,
}

interface VendorDefinition extends Pick<HttpProviderOptions, 'name' | 'format' | 'urls' | 'forwardedHeaders'> {
  readonly functionName: string
  readonly family: string
  readonly known: readonly KnownModel[]
  readonly headers?: Readonly<Record<string, string>>
  readonly credentials?: Credentials | undefined
}

export function vendorProvider(options: VendorOptions, vendor: VendorDefinition): Provider {
  const { credentials = {}, headers, ...endpoint } = vendor
  const { fetch } = options
  const extraHeaders = definedFields(options.headers ?? {})
  const signedValues: string[] = []
  const keys = Object.values(credentials.headers ?? {}).map(withoutScheme)
  return httpProvider({
    ...endpoint,
    ...createProviderModels(options, vendor),
    headers: { ...headers, ...credentials.headers, ...extraHeaders },
    secrets: () => secretsIn([...keys, ...signedValues], Object.values(extraHeaders).map(withoutScheme)),
    sign: credentials.sign && recordSignedValues(credentials.sign, signedValues),
    usesCallerKeys: credentials.usesCallerKeys,
    ...(fetch !== undefined && { transport: fetchTransport(fetch) }),
  })
}

export function pricedModels(
  functionName: string,
  vendor: string,
  { prices, models = [], defaultPrice }: VendorOptions,
  catalog: readonly KnownModel[] = [],
): readonly KnownModel[] {
  const known = prices?.applyTo(catalog, vendor) ?? catalog
  if (known.length > 0 || models.length > 0 || defaultPrice !== undefined) return known
  throw optionError(
    functionName,
    'prices: unknown for this vendor. Set prices: priceList(…), models with a price, or defaultPrice',
  )
}

/** A model in a list of prices. */
export interface KnownModel extends Model {
  readonly pricedAt: string
  /** Set if the vendor no longer offers the model. Its id still resolves, because resellers may serve it. */
  readonly retired?: true
}

/** Prices from a file. Created by `priceList` from `sluice/providers`. */
export interface PriceList {
  /** Returns the known models, repriced if they are in the list, followed by the vendor's other listed models. */
  readonly applyTo: (known: readonly KnownModel[], vendor: string) => readonly KnownModel[]
}

interface CatalogRow extends Omit<KnownModel, 'family' | 'created' | 'pricedAt' | 'retired'> {
  readonly created?: string
  readonly pricedAt?: string
  readonly retired?: boolean
}

export function readCatalog(
  rows: readonly CatalogRow[],
  shared: Partial<KnownModel> & { readonly family: string },
): readonly KnownModel[] {
  return rows.map(({ created, retired, pricedAt = shared.pricedAt ?? '', ...row }) => {
    const { small, ...others } = shared
    return {
      ...others,
      ...(small !== undefined && small !== row.id && { small }),
      ...row,
      pricedAt,
      ...(created !== undefined && { created: Date.parse(created) / 1000 }),
      ...(retired === true && { retired }),
    }
  })
}

const FAMILY_PREFIXES: Readonly<Record<string, readonly string[]>> = {
  claude: ['claude'],
  gpt: ['gpt', 'chatgpt', 'o1', 'o3', 'o4'],
  gemini: ['gemini', 'gemma'],
  llama: ['llama', 'meta-llama'],
  mistral: ['mistral', 'ministral', 'mixtral', 'magistral', 'codestral', 'devstral', 'pixtral'],
  qwen: ['qwen', 'qwq'],
  deepseek: ['deepseek'],
  command: ['command'],
  grok: ['grok'],
  extractive: ['extractive'],
}

export function familyOf(id: string): string | undefined {
  const name = id.slice(id.lastIndexOf('/') + 1).toLowerCase()
  const families = Object.entries(FAMILY_PREFIXES)
  return families.find(([, prefixes]) => prefixes.some((prefix) => name.startsWith(prefix)))?.[0]
}

export const DEFAULT_CONTEXT_WINDOW_TOKENS = 128_000
export const DEFAULT_MAX_OUTPUT_TOKENS = 16_384

function createProviderModels(
  { models: entries = [], defaultPrice }: VendorOptions,
  { functionName, family, known }: VendorDefinition,
): Pick<Provider, 'models' | 'model'> {
  const byId = new Map<string, Model>()
  const listedIds = new Set<string>()
  for (const { retired, ...model } of known) {
    byId.set(model.id, model)
    if (retired === undefined) listedIds.add(model.id)
  }
  const configuredIds = new Set<string>()
  for (const [index, entry] of entries.entries()) {
    const label = `models[${index}]: the model "${entry.id}"`
    if (configuredIds.has(entry.id))
      throw optionError(functionName, `${label} is listed twice. Remove one of the entries`)
    configuredIds.add(entry.id)
    listedIds.add(entry.id)
    const model = completeModel(entry, byId.get(entry.id), family, defaultPrice)
    if (model === undefined) {
      throw optionError(functionName, `${label} has no price. ${PRICE_REMEDY}, or set defaultPrice for all models`)
    }
    byId.set(entry.id, model)
  }
  const byStem = modelsByStem([...byId.values()], stemOf)
  // The default price must not apply to another spelling of a model that has a price.
  const byLooseName = defaultPrice === undefined ? undefined : modelsByStem([...byId.values()], looseNameOf)
  const find = (id: string): Model | undefined => {
    // Vendors serve the same model as `name`, `name-latest` and `name-<date>`. A listed date can have its own price.
    const match = byId.get(id) ?? byStem.get(stemOf(id)) ?? byLooseName?.get(looseNameOf(id))
    if (match !== undefined) return match.id === id ? match : { ...match, id }
    return completeModel({ id }, undefined, family, defaultPrice)
  }
  for (const id of configuredIds) checkSmallModel(functionName, byId.get(id), find)
  return { models: [...listedIds].flatMap((id) => byId.get(id) ?? []), model: find }
}

/** The undated model of a stem takes precedence over its dated versions, and the first listed version over the others. */
function modelsByStem(models: readonly Model[], nameOf: (id: string) => string): ReadonlyMap<string, Model> {
  const byStem = new Map<string, Model>()
  for (const model of models) {
    const stem = nameOf(model.id)
    if (model.id === stem || !byStem.has(stem)) byStem.set(stem, model)
  }
  return byStem
}

export const PRICE_REMEDY = 'Set price to { input, output } in dollars per million tokens'

export function completeModel(
  entry: ModelEntry,
  known: Model | undefined,
  family: string,
  defaultPrice?: Price,
): Model | undefined {
  const model = { ...known, ...definedFields(entry) }
  const { price = defaultPrice, contextWindowTokens = DEFAULT_CONTEXT_WINDOW_TOKENS } = model
  if (price === undefined) return undefined
  return {
    ...model,
    price,
    family: model.family ?? familyOf(model.id) ?? family,
    contextWindowTokens,
    maxOutputTokens: model.maxOutputTokens ?? Math.min(DEFAULT_MAX_OUTPUT_TOKENS, contextWindowTokens),
  }
}

function checkSmallModel(functionName: string, model: Model | undefined, find: Provider['model']): void {
  if (model?.small === undefined) return
  const small = find(model.small)
  if (small?.family === model.family) return
  const problem = small === undefined ? 'is not a model of this provider' : `is of the family "${small.family}"`
  throw optionError(
    functionName,
    `models: small: "${model.small}" ${problem}; expected a model of the family "${model.family}"`,
  )
}

/** Some servers ignore the case of a name and the tag `:latest`. */
function looseNameOf(id: string): string {
  return stemOf(id.toLowerCase().replace(/:latest$/, ''))
}

/** Returns the id under which a provider lists a model, without `-latest` and date. Spellings of a model have one. */
export function listedStemOf({ provider, model: { id } }: Route): string {
  const stem = stemOf(id)
  const { models } = provider
  if (models.some((model) => model.id === stem || model.id === id)) return stem
  const listed = models.filter((model) => looseNameOf(model.id) === looseNameOf(id)).map((model) => stemOf(model.id))
  return listed.includes(stem) ? stem : (listed[0] ?? stem)
}
