import { asCount, asObject, asString, isJsonObject, type JsonObject } from '../core/json.ts'
import type { Price, TierPrice } from '../core/money.ts'
import { checkDate, checkOptions, type OptionCheck, optionsOf } from '../core/check-options.ts'
import type { Provider } from '../core/ports.ts'
import { chatProvider } from './main-providers.ts'
import catalog from './models/vendors.json' with { type: 'json' }
import { optionError } from './provider-options.ts'
import {
  DEFAULT_CONTEXT_WINDOW_TOKENS,
  DEFAULT_MAX_OUTPUT_TOKENS,
  familyOf,
  type KnownModel,
  type PriceList,
  pricedModels,
  readCatalog,
  VENDOR_CHECKS,
  type VendorOptions,
} from './vendor.ts'

const MODELS: Readonly<Record<string, Parameters<typeof readCatalog>[0]>> = catalog.models

export function knownModelsOf(vendor: string): readonly KnownModel[] {
  const rows = MODELS[vendor] ?? []
  const known = rows.flatMap((row) =>
    readCatalog([row], { family: familyOf(row.id) ?? vendor, pricedAt: catalog.pricedAt }),
  )
  return known.map((model) => {
    const small = SMALL_FAMILIES.has(model.family) && isChatModel(model) ? cheapestSibling(model, known) : undefined
    return small === undefined ? model : { small: small.id, ...model }
  })
}

/** The families whose small models are chosen from the catalog by price. */
const SMALL_FAMILIES: ReadonlySet<string> = new Set(['gemini', 'llama', 'mistral'])

/** A small model receives long prompts. Classifiers and the oldest models have a shorter context. */
const MIN_SMALL_WINDOW_TOKENS = 16_384

function isChatModel({ price }: KnownModel): boolean {
  return price.output > 0
}

function cheapestSibling(model: KnownModel, known: readonly KnownModel[]): KnownModel | undefined {
  const cost = ({ price }: KnownModel): number => price.input + price.output
  const siblings = known.filter(
    (other) =>
      other.family === model.family &&
      isChatModel(other) &&
      other.contextWindowTokens >= MIN_SMALL_WINDOW_TOKENS &&
      other.price.input <= model.price.input &&
      other.price.output <= model.price.output &&
      cost(other) < cost(model),
  )
  return siblings.toSorted((a, b) => cost(a) - cost(b))[0]
}

export const checkVendor: OptionCheck = optionsOf(VENDOR_CHECKS)

const FREE: Price = { input: 0, output: 0 }

/** Creates the provider of a vendor. Throws `invalid-request` for invalid options. */
export type VendorProvider = (options?: VendorOptions) => Provider

/** @param keyVariable Absent for local servers, which need no key and are free by default. */
function vendor(vendorName: string, vendorUrl: string, keyVariable?: string): VendorProvider {
  return (options = {}) => {
    checkOptions(vendorName, options, checkVendor)
    const {
      name = vendorName,
      baseUrl = vendorUrl,
      defaultPrice = keyVariable === undefined ? FREE : undefined,
    } = options
    const completeOptions = { ...options, name, baseUrl, ...(defaultPrice !== undefined && { defaultPrice }) }
    const known = pricedModels(vendorName, vendorName, completeOptions, knownModelsOf(vendorName))
    return chatProvider(vendorName, completeOptions, known, keyVariable === undefined ? [] : [keyVariable])
  }
}

/** Models of OpenRouter. The API key is read from OPENROUTER_API_KEY unless `apiKey` is given. */
export const openrouter: VendorProvider = vendor('openrouter', 'https://openrouter.ai/api/v1', 'OPENROUTER_API_KEY')
/** Models of Groq. The API key is read from GROQ_API_KEY unless `apiKey` is given. */
export const groq: VendorProvider = vendor('groq', 'https://api.groq.com/openai/v1', 'GROQ_API_KEY')
/** Models of Mistral AI. The API key is read from MISTRAL_API_KEY unless `apiKey` is given. */
export const mistral: VendorProvider = vendor('mistral', 'https://api.mistral.ai/v1', 'MISTRAL_API_KEY')
/** Models of DeepSeek. The API key is read from DEEPSEEK_API_KEY unless `apiKey` is given. */
export const deepseek: VendorProvider = vendor('deepseek', 'https://api.deepseek.com', 'DEEPSEEK_API_KEY')
/** Models of xAI. The API key is read from XAI_API_KEY unless `apiKey` is given. */
export const xai: VendorProvider = vendor('xai', 'https://api.x.ai/v1', 'XAI_API_KEY')
/** Models of Together AI. The API key is read from TOGETHER_API_KEY unless `apiKey` is given. */
export const together: VendorProvider = vendor('together', 'https://api.together.xyz/v1', 'TOGETHER_API_KEY')
/** Models of Fireworks AI. The API key is read from FIREWORKS_API_KEY unless `apiKey` is given. */
export const fireworks: VendorProvider = vendor(
  'fireworks',
  'https://api.fireworks.ai/inference/v1',
  'FIREWORKS_API_KEY',
)
/** Models of Cerebras. The API key is read from CEREBRAS_API_KEY unless `apiKey` is given. */
export const cerebras: VendorProvider = vendor('cerebras', 'https://api.cerebras.ai/v1', 'CEREBRAS_API_KEY')
/** Models of a local Ollama server, by default at http://127.0.0.1:11434. They need no key; free by default. */
export const ollama: VendorProvider = vendor('ollama', 'http://127.0.0.1:11434/v1')
/** Models of a local vLLM server, by default at http://127.0.0.1:8000. They need no key; free by default. */
export const vllm: VendorProvider = vendor('vllm', 'http://127.0.0.1:8000/v1')
/** Models of a local LM Studio server, by default at http://127.0.0.1:1234. They need no key; free by default. */
export const lmStudio: VendorProvider = vendor('lmstudio', 'http://127.0.0.1:1234/v1')

/** Options of `priceList()`. */
export interface PriceListOptions {
  /** Date of the file and of every price in it, YYYY-MM-DD. */
  readonly pricedAt: string
}

const checkPriceListOptions = optionsOf({ pricedAt: checkDate }, ['pricedAt'])

/** Further names of a vendor in price files: first models.dev, then LiteLLM. */
const VENDOR_IDS: Readonly<Record<string, readonly string[]>> = {
  gemini: ['google'],
  together: ['togetherai', 'together_ai'],
  fireworks: ['fireworks-ai', 'fireworks_ai'],
  bedrock: ['amazon-bedrock', 'bedrock_converse', 'bedrock_mantle'],
  vertex: ['google-vertex', 'vertex_ai-language-models', 'vertex_ai-anthropic_models'],
}

/**
 * Reads the parsed price file of LiteLLM (`model_prices_and_context_window.json`) or models.dev (`api.json`). Ignores
 * media models, models that models.dev marks as deprecated, models without a price per token, and models whose prices
 * are 0, which both files also use for unknown prices. Throws `invalid-request` for an unknown file format. A provider
 * throws `invalid-request` for an invalid price of its vendor.
 *
 * @example
 * const file: unknown = JSON.parse(await readFile('model_prices_and_context_window.json', 'utf8'))
 * const prices = priceList(file, { pricedAt: '2026-11-01' })
 * const gateway = createGateway({ providers: [groq({ prices })] })
 */
export function priceList(file: unknown, options: PriceListOptions): PriceList {
  checkOptions('priceList', options, checkPriceListOptions)
  const { pricedAt } = options
  const listModels = isJsonObject(file) ? (readModelsDev(file) ?? readLitellm(file)) : undefined
  if (listModels === undefined)
    throw optionError('priceList', "expected the parsed JSON of LiteLLM's or models.dev's price file")
  return {
    applyTo: (known, vendor) => {
      const byId = new Map(known.map((model) => [model.id, model]))
      const vendorModels = [vendor, ...(VENDOR_IDS[vendor] ?? [])].flatMap((vendorId) => listModels(vendorId))
      for (const model of vendorModels.filter(({ price }) => price.input + price.output > 0)) {
        const listed = byId.get(model.id)
        byId.set(model.id, { ...model, ...listed, price: withKnownPrices(model.price, listed?.price), pricedAt })
      }
      return [...byId.values()]
    },
  }
}

/** Files omit some prices. Those of the catalog stay valid as long as the list price is the same. */
function withKnownPrices(price: Price, known: Price | undefined): Price {
  if (known?.input !== price.input || known.output !== price.output) return price
  const { cacheWrite1h, tiers } = known
  return { ...(cacheWrite1h !== undefined && { cacheWrite1h }), ...(tiers !== undefined && { tiers }), ...price }
}

type ListVendorModels = (vendorId: string) => readonly Omit<KnownModel, 'pricedAt'>[]

/** Prices are in dollars per million tokens. */
function readModelsDev(file: JsonObject): ListVendorModels | undefined {
  const isModelsDev = Object.values(file).some((vendor) => isJsonObject(asObject(vendor)?.['models']))
  if (!isModelsDev) return undefined
  return (vendorId) => {
    const vendor = Object.hasOwn(file, vendorId) ? asObject(file[vendorId]) : undefined
    return Object.entries(asObject(vendor?.['models']) ?? {}).flatMap(([modelId, value]) => {
      const model = asObject(value)
      const cost = asObject(model?.['cost'])
      if (model === undefined || cost === undefined || !isCurrentTextModel(model)) return []
      const price = modelsDevPrice(`file.${vendorId}.models[${JSON.stringify(modelId)}].cost`, cost)
      return [modelOf(modelId, price, asObject(model['limit']) ?? {}, ['context', 'output'])]
    })
  }
}

function isCurrentTextModel(model: JsonObject): boolean {
  const output = asObject(model['modalities'])?.['output']
  return model['status'] !== 'deprecated' && (!Array.isArray(output) || (output.length === 1 && output[0] === 'text'))
}

function modelsDevPrice(path: string, cost: JsonObject): Price {
  const rates = (from: JsonObject, field = path): Omit<Price, 'long'> => {
    const rate = (name: string): number => dollarsPerMillion(`${field}.${name}`, from[name])
    return {
      input: rate('input'),
      output: rate('output'),
      ...(from['cache_read'] !== undefined && { cacheRead: rate('cache_read') }),
      ...(from['cache_write'] !== undefined && { cacheWrite: rate('cache_write') }),
    }
  }
  const tiers = Array.isArray(cost['tiers']) ? cost['tiers'].filter(isJsonObject) : []
  const over200k = asObject(cost['context_over_200k'])
  const [tier] = tiers
  const above = asCount(asObject(tier?.['tier'])?.['size'])
  if (tier !== undefined && above !== undefined)
    return { ...rates(cost), long: { ...rates(tier, `${path}.tiers[0]`), aboveTokens: above } }
  if (over200k === undefined) return rates(cost)
  return { ...rates(cost), long: { ...rates(over200k, `${path}.context_over_200k`), aboveTokens: 200_000 } }
}

/** Prices are in dollars per token. */
function readLitellm(file: JsonObject): ListVendorModels | undefined {
  const entries = Object.entries(file).flatMap(([id, value]) => {
    const vendor = asString(asObject(value)?.['litellm_provider'])
    return isJsonObject(value) && vendor !== undefined ? [{ id, vendor, row: value }] : []
  })
  if (entries.length === 0) return undefined
  return (vendorId) =>
    entries
      .filter(({ vendor, row }) => vendor === vendorId && isPricedTextModel(row))
      .map((entry) => {
        const modelId = entry.id.startsWith(`${vendorId}/`) ? entry.id.slice(vendorId.length + 1) : entry.id
        const price = litellmPrice(`file[${JSON.stringify(entry.id)}]`, entry.row)
        return modelOf(modelId, price, entry.row, ['max_input_tokens', 'max_output_tokens'])
      })
}

const TEXT_MODES: readonly unknown[] = [undefined, 'chat', 'responses', 'completion', 'embedding']

function isPricedTextModel(row: JsonObject): boolean {
  return row['input_cost_per_token'] !== undefined && TEXT_MODES.includes(row['mode'])
}

/** Suffixes of the file, by the name in `Price.tiers`. */
const LITELLM_TIERS = { priority: '_priority', flex: '_flex', ultrafast: '_ultrafast', batch: '_batches' } as const

function litellmPrice(path: string, row: JsonObject): Price {
  const base = litellmRates(path, row, '')
  const tiers: Record<string, number | TierPrice> = {}
  for (const [name, suffix] of Object.entries(LITELLM_TIERS)) {
    const hasRates = ['input', 'output'].every((kind) => isNumber(row[`${kind}_cost_per_token${suffix}`]))
    if (hasRates) tiers[name] = litellmRates(path, row, suffix)
  }
  const factors = asObject(row['provider_specific_entry']) ?? {}
  for (const [name, field] of [
    ['fast', 'fast'],
    ['inference_geo:us', 'us'],
  ] as const) {
    const factor = factors[field]
    if (isNumber(factor)) tiers[name] = factor
  }
  return Object.keys(tiers).length === 0 ? base : { ...base, tiers }
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number'
}

/** @param tier The suffix of the tier, after that of long prompts. A rate without a suffix is not that of a tier. */
function litellmRates(path: string, row: JsonObject, tier: string): TierPrice {
  const rates = (suffix: string): Omit<TierPrice, 'long'> => {
    const optionalRate = (field: string, mark = ''): number | undefined => {
      const ofTier = `${field}${mark}${suffix}${tier}`
      const name = (row[ofTier] ?? undefined) === undefined ? `${field}${mark}${tier}` : ofTier
      const value = row[name] ?? undefined
      return value === undefined ? undefined : dollarsPerMillion(`${path}.${name}`, value, 1e6)
    }
    const rate = (field: string): number =>
      optionalRate(field) ?? dollarsPerMillion(`${path}.${field}${tier}`, undefined, 1e6)
    const cacheRead = optionalRate('cache_read_input_token_cost')
    const cacheWrite = optionalRate('cache_creation_input_token_cost')
    const cacheWrite1h = optionalRate('cache_creation_input_token_cost', '_above_1hr')
    const isEmbedding = row['mode'] === 'embedding'
    return {
      input: rate('input_cost_per_token'),
      output: isEmbedding ? (optionalRate('output_cost_per_token') ?? 0) : rate('output_cost_per_token'),
      ...(cacheRead !== undefined && { cacheRead }),
      ...(cacheWrite !== undefined && { cacheWrite }),
      ...(cacheWrite1h !== undefined && { cacheWrite1h }),
    }
  }
  const pattern = new RegExp(`^input_cost_per_token(_above_(\\d+)k_tokens)${tier}$`)
  const [, suffix, thousands] = Object.keys(row).flatMap((field) => pattern.exec(field) ?? [])
  if (suffix === undefined) return rates('')
  return { ...rates(''), long: { ...rates(suffix), aboveTokens: Number(thousands) * 1000 } }
}

function modelOf(
  id: string,
  price: Price,
  limits: JsonObject,
  [context, output]: readonly [string, string],
): Omit<KnownModel, 'pricedAt'> {
  const contextWindowTokens = asCount(limits[context]) || DEFAULT_CONTEXT_WINDOW_TOKENS
  const maxOutputTokens = asCount(limits[output]) || Math.min(DEFAULT_MAX_OUTPUT_TOKENS, contextWindowTokens)
  return { id, family: familyOf(id) ?? id, contextWindowTokens, maxOutputTokens, price }
}

const MAX_PRICE = 10_000

/** @param path The field of the file, for the error. */
function dollarsPerMillion(path: string, value: unknown, factor = 1): number {
  // Rounding removes the floating-point error of the multiplication.
  const dollars = typeof value === 'number' ? Number((value * factor).toPrecision(12)) : Number.NaN
  if (dollars >= 0 && dollars <= MAX_PRICE) return dollars
  const received = typeof value === 'number' ? `${value}${factor === 1 ? '' : ' per token'}` : JSON.stringify(value)
  const problem = `${path}: expected 0 to ${MAX_PRICE} dollars per million tokens, got ${received}`
  throw optionError('priceList', problem)
}
