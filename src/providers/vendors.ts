import * as z from 'zod/mini'
import type { Provider } from '../core/ports.ts'
import { familyOf, type KnownModel, readCatalog } from './models.ts'
import catalog from './models/vendors.json' with { type: 'json' }
import { chatProvider } from './openai-anthropic.ts'
import { nonEmptySchema, parseOptions, trimTrailingSlashes } from './provider-options.ts'
import {
  type ApiKey,
  apiKeyOptionSchema,
  CHAT_FORMAT,
  keyCredentials,
  pricedModels,
  vendorFields,
  type VendorOptions,
  vendorProvider,
} from './vendor.ts'
import { GatewayError } from '../core/errors.ts'
import type { HttpProviderOptions } from './http-provider.ts'

const MODELS: Readonly<Record<string, Parameters<typeof readCatalog>[0]>> = catalog.models

/** Returns no models for vendors without prices. */
export function knownModelsOf(vendor: string): readonly KnownModel[] {
  const rows = MODELS[vendor] ?? []
  return rows.flatMap((row) => readCatalog([row], { family: familyOf(row.id) ?? vendor, pricedAt: catalog.pricedAt }))
}

const schema: z.ZodMiniType<VendorOptions> = z.strictObject(vendorFields)

/** Creates the provider of a vendor. Throws `invalid-request` for invalid options. */
export type VendorProvider = (options?: VendorOptions) => Provider

/** @param keyVariable Absent for local servers, which need no key and are free. */
function vendor(name: string, baseUrl: string, keyVariable?: string): VendorProvider {
  return (options = {}) => {
    const parsed = parseOptions(name, schema, options)
    const localDefaults = keyVariable === undefined ? { defaultPrice: { input: 0, output: 0 } } : {}
    const completeOptions = { name, baseUrl, ...localDefaults, ...parsed }
    const known = pricedModels(name, name, completeOptions, knownModelsOf(name))
    return chatProvider(name, completeOptions, known, keyVariable === undefined ? [] : [keyVariable])
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
/** Models of a local Ollama server, by default at http://127.0.0.1:11434. They need no key and are free. */
export const ollama: VendorProvider = vendor('ollama', 'http://127.0.0.1:11434/v1')
/** Models of a local vLLM server, by default at http://127.0.0.1:8000. They need no key and are free. */
export const vllm: VendorProvider = vendor('vllm', 'http://127.0.0.1:8000/v1')
/** Models of a local LM Studio server, by default at http://127.0.0.1:1234. They need no key and are free. */
export const lmStudio: VendorProvider = vendor('lmstudio', 'http://127.0.0.1:1234/v1')

/** Options of `azureOpenai()`. */
export interface AzureOpenaiOptions extends VendorOptions {
  /** The resource name in `https://<resource>.openai.azure.com`. `baseUrl` replaces the entire URL. */
  readonly resource?: string
  /** An api-version such as `2024-10-21`. Models are then addressed by deployment. @default the v1 endpoints */
  readonly apiVersion?: string
  /** An Entra ID token, or a function that returns the token for each call. Used instead of a key. */
  readonly token?: ApiKey
}

const azureSchema: z.ZodMiniType<AzureOpenaiOptions> = z.strictObject({
  ...vendorFields,
  resource: z.exactOptional(
    z.string().check(z.regex(/^[a-z0-9][a-z0-9-]*$/i, { error: 'expected the name of an Azure resource' })),
  ),
  apiVersion: z.exactOptional(
    nonEmptySchema.check(z.regex(/^[\w-]+$/, { error: 'expected a version such as 2024-10-21' })),
  ),
  token: z.exactOptional(apiKeyOptionSchema),
})

/**
 * Creates a provider for Azure OpenAI. The model id is the deployment name. The catalog has no Azure prices. Throws
 * `invalid-request` for invalid options.
 */
export function azureOpenai(options: AzureOpenaiOptions): Provider {
  const parsed = parseOptions('azureOpenai', azureSchema, options)
  const { name = 'azure', resource, baseUrl, apiVersion, token, apiKey } = parsed
  if (resource === undefined && baseUrl === undefined) {
    const message = 'azureOpenai: resource: expected the name of the resource, got undefined.'
    throw new GatewayError('invalid-request', message)
  }
  const root = trimTrailingSlashes(baseUrl ?? `https://${resource}.openai.azure.com`)
  const variables = ['AZURE_OPENAI_API_KEY', 'AZURE_API_KEY']
  return vendorProvider(parsed, {
    functionName: 'azureOpenai',
    name,
    family: 'gpt',
    known: pricedModels('azureOpenai', 'azure', parsed),
    format: CHAT_FORMAT,
    urls: apiVersion === undefined ? v1Urls(root) : deploymentUrls(root, apiVersion),
    credentials:
      token === undefined
        ? keyCredentials({ provider: name, header: 'api-key', apiKey, variables })
        : keyCredentials({ provider: name, apiKey: token, variables: [] }),
  })
}

function v1Urls(root: string): HttpProviderOptions['urls'] {
  const v1 = `${root}/openai/v1`
  return { create: `${v1}/chat/completions`, embed: `${v1}/embeddings`, ping: `${v1}/models`, base: v1 }
}

function deploymentUrls(root: string, apiVersion: string): HttpProviderOptions['urls'] {
  const query = `?api-version=${apiVersion}`
  const deploymentUrl = (id: string, path: string): string => `${root}/openai/deployments/${id}/${path}${query}`
  return {
    create: (id) => deploymentUrl(id, 'chat/completions'),
    embed: (id) => deploymentUrl(id, 'embeddings'),
    ping: `${root}/openai/models${query}`,
  }
}
