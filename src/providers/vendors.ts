import * as z from 'zod/mini'
import type { Provider } from '../core/ports.ts'
import { familyOf, readCatalog, type KnownModel } from './model-book.ts'
import catalog from './models/vendors.json' with { type: 'json' }
import { chatProvider } from './openai.ts'
import { parseOptions } from './provider-options.ts'
import { pricedModels, vendorFields, type VendorOptions } from './vendor.ts'

const MODELS: Readonly<Record<string, Parameters<typeof readCatalog>[0]>> = catalog.models

/** Returns the models of a vendor in the catalog, or an empty list for a vendor without prices. */
export function knownModelsOf(vendor: string): readonly KnownModel[] {
  const rows = MODELS[vendor] ?? []
  return rows.flatMap((row) => readCatalog([row], { family: familyOf(row.id) ?? vendor, pricedAt: catalog.pricedAt }))
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
    const free = variable === undefined ? { defaultPrice: { input: 0, output: 0 } } : {}
    const all = { name, baseUrl, ...free, ...parsed }
    const known = pricedModels(name, name, all, knownModelsOf(name))
    return chatProvider(name, all, known, variable === undefined ? [] : [variable])
  }
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
