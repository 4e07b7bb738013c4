import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { Price } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'
import type { ApiKey } from './credentials.ts'
import type { PriceList } from './known-model.ts'
import { chatProvider, commonFields, type OptionFields } from './openai-compatible.ts'
import { headersSchema, parseOptions, type ModelEntry } from './provider-options.ts'
import { knownModelsOf } from './vendor-models.ts'

/** The options of every vendor. */
export interface VendorOptions {
  /** The name of the provider in `<provider>/<model_id>`. @default the vendor's name */
  readonly name?: string
  /** The key, or a function that returns it for each call. @default the vendor's environment variable, read by the first call */
  readonly apiKey?: ApiKey
  /** @default the vendor's address */
  readonly baseUrl?: string
  /** Models in addition to the catalog. Fields override those of the catalog. @default the models of the catalog */
  readonly models?: readonly ModelEntry[]
  /** Prices from a file. They override those of the catalog. Models that are only in the file are served, too. */
  readonly prices?: PriceList
  /** Dollars per million tokens for unknown models. If set, every model id is accepted. */
  readonly defaultPrice?: Price
  /** Additional headers of each call. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /** Replaces the transport of the gateway; called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

/** The fields of `VendorOptions`, for the schemas of vendors that have more. */
export const vendorFields: OptionFields<VendorOptions> = {
  ...commonFields,
  headers: z.exactOptional(headersSchema),
}

const schema: z.ZodMiniType<VendorOptions> = z.strictObject(vendorFields)

/**
 * Creates the provider of a vendor. Throws `invalid-request` with the path and the expected value for invalid options.
 */
export type VendorProvider = (options?: VendorOptions) => Provider

interface Vendor {
  readonly baseUrl: string
  /** Absent for local servers: they need no key, and their tokens are not billed. */
  readonly variable?: string
}

function vendor(name: string, { baseUrl, variable }: Vendor): VendorProvider {
  return (options = {}) => {
    const parsed = parseOptions(name, schema, options)
    const known = parsed.prices?.over(knownModelsOf(name), name) ?? knownModelsOf(name)
    const free = variable === undefined ? { defaultPrice: { input: 0, output: 0 } } : {}
    const all = { name, baseUrl, ...free, ...parsed }
    requirePrice(name, known, all)
    return chatProvider(name, all, known, variable === undefined ? [] : [variable])
  }
}

/** Without this check, a model without a price would be free. */
export function requirePrice(
  who: string,
  known: readonly unknown[],
  { models = [], defaultPrice }: Pick<VendorOptions, 'models' | 'defaultPrice'>,
): void {
  if (known.length > 0 || models.length > 0 || defaultPrice !== undefined) return
  throw new GatewayError(
    'invalid-request',
    `${who}: prices: the catalog has no prices of this vendor. Give prices: priceList(…), models with a price, or a defaultPrice.`,
  )
}

/** Models of OpenRouter. The API key is read from OPENROUTER_API_KEY unless `apiKey` is given. */
export const openrouter: VendorProvider = vendor('openrouter', {
  baseUrl: 'https://openrouter.ai/api/v1',
  variable: 'OPENROUTER_API_KEY',
})
/** Models of Groq. The API key is read from GROQ_API_KEY unless `apiKey` is given. */
export const groq: VendorProvider = vendor('groq', {
  baseUrl: 'https://api.groq.com/openai/v1',
  variable: 'GROQ_API_KEY',
})
/** Models of Mistral AI. The API key is read from MISTRAL_API_KEY unless `apiKey` is given. */
export const mistral: VendorProvider = vendor('mistral', {
  baseUrl: 'https://api.mistral.ai/v1',
  variable: 'MISTRAL_API_KEY',
})
/** Models of DeepSeek. The API key is read from DEEPSEEK_API_KEY unless `apiKey` is given. */
export const deepseek: VendorProvider = vendor('deepseek', {
  baseUrl: 'https://api.deepseek.com',
  variable: 'DEEPSEEK_API_KEY',
})
/** Models of xAI. The API key is read from XAI_API_KEY unless `apiKey` is given. */
export const xai: VendorProvider = vendor('xai', { baseUrl: 'https://api.x.ai/v1', variable: 'XAI_API_KEY' })
/** Models of Together AI. The API key is read from TOGETHER_API_KEY unless `apiKey` is given. */
export const together: VendorProvider = vendor('together', {
  baseUrl: 'https://api.together.xyz/v1',
  variable: 'TOGETHER_API_KEY',
})
/** Models of Fireworks AI. The API key is read from FIREWORKS_API_KEY unless `apiKey` is given. */
export const fireworks: VendorProvider = vendor('fireworks', {
  baseUrl: 'https://api.fireworks.ai/inference/v1',
  variable: 'FIREWORKS_API_KEY',
})
/** Models of Cerebras. The API key is read from CEREBRAS_API_KEY unless `apiKey` is given. */
export const cerebras: VendorProvider = vendor('cerebras', {
  baseUrl: 'https://api.cerebras.ai/v1',
  variable: 'CEREBRAS_API_KEY',
})
/** Models of a local Ollama server, http://127.0.0.1:11434 by default. They need no key and cost nothing. */
export const ollama: VendorProvider = vendor('ollama', { baseUrl: 'http://127.0.0.1:11434/v1' })
/** Models of a local vLLM server, http://127.0.0.1:8000 by default. They need no key and cost nothing. */
export const vllm: VendorProvider = vendor('vllm', { baseUrl: 'http://127.0.0.1:8000/v1' })
/** Models of a local LM Studio, http://127.0.0.1:1234 by default. They need no key and cost nothing. */
export const lmStudio: VendorProvider = vendor('lmstudio', { baseUrl: 'http://127.0.0.1:1234/v1' })
