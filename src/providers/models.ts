import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import type { Price } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'
import type { ModelEntry } from './provider-options.ts'

/**
 * A model in the catalog. `pricedAt` is the date on which the price was last checked against the vendor's page. The
 * option `models` of a provider, and `catalog.models` of the gateway, override outdated values.
 */
export interface KnownModel extends Model {
  readonly pricedAt: string
  /**
   * True for a model that the vendor no longer offers. It is not listed, but its id can be resolved, because resellers
   * may still serve it.
   */
  readonly retired?: true
}

/** Prices from a file. Created by `priceList` from `sluice/providers`. */
export interface PriceList {
  /** Returns the known models with prices from the list, followed by the vendor's other models in the list. */
  readonly applyTo: (known: readonly KnownModel[], vendor: string) => readonly KnownModel[]
}

interface CatalogRow extends Omit<KnownModel, 'family' | 'created' | 'pricedAt' | 'retired'> {
  /** YYYY-MM-DD. */
  readonly created?: string
  readonly pricedAt?: string
  readonly retired?: boolean
}

/** Returns the models of a catalog file. The fields of a row override `shared`. */
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

/** Returns the family for the prefix of a model id, or undefined for an unknown prefix. Ignores a vendor before `/`. */
export function familyOf(id: string): string | undefined {
  const name = id.slice(id.lastIndexOf('/') + 1).toLowerCase()
  const families = Object.entries(FAMILY_PREFIXES)
  return families.find(([, prefixes]) => prefixes.some((prefix) => name.startsWith(prefix)))?.[0]
}

interface ProviderModelsOptions {
  readonly functionName: string
  /** The family of models whose id does not name a family. */
  readonly family: string
  readonly known?: readonly KnownModel[]
  /** Models that extend the known models, or override a known model with the same id. */
  readonly entries?: readonly ModelEntry[] | undefined
  /** The price of all other models. If set, every model id is accepted. @default other models are not served */
  readonly defaultPrice?: Price | undefined
}

const DEFAULT_CONTEXT_WINDOW_TOKENS = 128_000
const DEFAULT_MAX_OUTPUT_TOKENS = 16_384

/**
 * Throws `invalid-request` for a model without a price, a duplicate model, or a small model that is unknown or of
 * another family.
 */
export function createProviderModels(options: ProviderModelsOptions): Pick<Provider, 'models' | 'model'> {
  const { known = [], entries = [], defaultPrice } = options
  const byId = new Map<string, Model>()
  const listedIds = new Set<string>()
  for (const { retired, ...model } of known) {
    byId.set(model.id, model)
    if (retired === undefined) listedIds.add(model.id)
  }
  const configuredIds = new Set<string>()
  for (const [index, entry] of entries.entries()) {
    if (configuredIds.has(entry.id))
      throw optionError(options, `models[${index}]: the model "${entry.id}" is listed twice. Remove one of the entries`)
    configuredIds.add(entry.id)
    listedIds.add(entry.id)
    byId.set(entry.id, modelFor(entry, byId.get(entry.id), options, index))
  }
  const byStem = new Map([...byId.values()].map((model) => [stemOf(model.id), model]))
  const find = (id: string): Model | undefined => {
    // Vendors serve the same model as `name`, `name-latest` and `name-<date>`.
    const match = byId.get(id) ?? byStem.get(stemOf(id))
    if (match !== undefined) return match.id === id ? match : { ...match, id }
    return defaultPrice === undefined ? undefined : completeModel({ id, price: defaultPrice }, options.family)
  }
  for (const id of configuredIds) checkSmallModel(options, byId.get(id), find)
  return { models: [...listedIds].flatMap((id) => byId.get(id) ?? []), model: find }
}

function modelFor(entry: ModelEntry, known: Model | undefined, options: ProviderModelsOptions, index: number): Model {
  const price = entry.price ?? known?.price ?? options.defaultPrice
  if (price !== undefined) return completeModel({ ...known, ...entry, price }, options.family)
  throw optionError(
    options,
    `models[${index}]: the model "${entry.id}" has no price. Set price to { input, output } in dollars per million ` +
      'tokens, or set defaultPrice for all models',
  )
}

/** Fills in the defaults of `ModelEntry`. */
export function completeModel(entry: ModelEntry & { readonly price: Price }, family: string): Model {
  const { contextWindow = DEFAULT_CONTEXT_WINDOW_TOKENS } = entry
  return {
    ...entry,
    family: entry.family ?? familyOf(entry.id) ?? family,
    contextWindow,
    maxOutputTokens: entry.maxOutputTokens ?? Math.min(DEFAULT_MAX_OUTPUT_TOKENS, contextWindow),
  }
}

function checkSmallModel(options: ProviderModelsOptions, model: Model | undefined, find: Provider['model']): void {
  if (model?.small === undefined) return
  const small = find(model.small)
  if (small?.family === model.family) return
  const problem = small === undefined ? 'is not a model of this provider' : `is of the family "${small.family}"`
  throw optionError(
    options,
    `models: small: "${model.small}" ${problem}; expected a model of the family "${model.family}"`,
  )
}

/** Removes the date or `-latest` from the end of a model id. */
export function stemOf(id: string): string {
  return id.replace(/-(?:latest|\d{8}|\d{4}-\d{2}-\d{2})$/, '')
}

function optionError(options: ProviderModelsOptions, problem: string): GatewayError {
  return new GatewayError('invalid-request', `${options.functionName}: ${problem}.`)
}
