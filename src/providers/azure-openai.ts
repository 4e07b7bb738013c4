import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { Provider } from '../core/ports.ts'
import type { HttpProviderOptions } from './http-provider.ts'
import { nonEmpty, parseOptions, trimSlash } from './provider-options.ts'
import {
  apiKeySourceSchema,
  CHAT,
  keyCredentials,
  pricedModels,
  vendorFields,
  vendorProvider,
  type ApiKey,
  type VendorOptions,
} from './vendor.ts'

/** Options of `azureOpenai()`. */
export interface AzureOpenaiOptions extends VendorOptions {
  /** The name of the resource in `https://<resource>.openai.azure.com`. `baseUrl` overrides it. */
  readonly resource?: string
  /** The date of an api-version, such as `2024-10-21`. Models are then addressed by deployment. @default the v1 address */
  readonly apiVersion?: string
  /** A token of Entra ID instead of a key, or a function that returns it for each call. */
  readonly token?: ApiKey
}

const schema: z.ZodMiniType<AzureOpenaiOptions> = z.strictObject({
  ...vendorFields,
  resource: z.exactOptional(
    z.string().check(z.regex(/^[a-z0-9][a-z0-9-]*$/i, { error: 'expected the name of an Azure resource' })),
  ),
  apiVersion: z.exactOptional(nonEmpty.check(z.regex(/^[\w-]+$/, { error: 'expected a version such as 2024-10-21' }))),
  token: z.exactOptional(apiKeySourceSchema),
})

/**
 * Creates a provider for Azure OpenAI. The id of a model is the name of its deployment. The catalog has no Azure prices.
 * Throws `invalid-request` with the path and the expected value for invalid options.
 */
export function azureOpenai(options: AzureOpenaiOptions): Provider {
  const parsed = parseOptions('azureOpenai', schema, options)
  const { name = 'azure', resource, baseUrl, apiVersion, token, apiKey } = parsed
  if (resource === undefined && baseUrl === undefined) {
    throw new GatewayError(
      'invalid-request',
      'azureOpenai: resource: expected the name of the resource, got undefined.',
    )
  }
  const root = trimSlash(baseUrl ?? `https://${resource}.openai.azure.com`)
  const variables = ['AZURE_OPENAI_API_KEY', 'AZURE_API_KEY']
  return vendorProvider(parsed, {
    who: 'azureOpenai',
    name,
    family: 'gpt',
    known: pricedModels('azureOpenai', 'azure', parsed),
    format: CHAT,
    urls: apiVersion === undefined ? v1Addresses(root) : deploymentAddresses(root, apiVersion),
    credentials:
      token === undefined
        ? keyCredentials({ who: name, header: 'api-key', apiKey, variables })
        : keyCredentials({ who: name, apiKey: token, variables: [] }),
  })
}

type Addresses = HttpProviderOptions['urls']

function v1Addresses(root: string): Addresses {
  const v1 = `${root}/openai/v1`
  return { create: `${v1}/chat/completions`, embed: `${v1}/embeddings`, ping: `${v1}/models`, base: v1 }
}

function deploymentAddresses(root: string, apiVersion: string): Addresses {
  const query = `?api-version=${apiVersion}`
  const of = (id: string, path: string): string => `${root}/openai/deployments/${id}/${path}${query}`
  return {
    create: (id) => of(id, 'chat/completions'),
    embed: (id) => of(id, 'embeddings'),
    ping: `${root}/openai/models${query}`,
  }
}
