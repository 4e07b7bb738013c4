import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { Provider } from '../core/ports.ts'
import { CHAT } from './upstream-formats.ts'
import { apiKeySourceSchema, keyCredentials, type ApiKey } from './credentials.ts'
import { httpProvider, type HttpProviderOptions } from './http-provider.ts'
import { createModelBook } from './model-book.ts'
import { transportOf } from './openai-compatible.ts'
import { nonEmpty, parseOptions, trimSlash } from './provider-options.ts'
import { requirePrice, vendorFields, type VendorOptions } from './vendors.ts'

/** Options of `azureOpenai()`. */
export interface AzureOpenaiOptions extends VendorOptions {
  /** The name of the resource: the address is `https://<resource>.openai.azure.com`. `baseUrl` wins. */
  readonly resource?: string
  /** The date of an api-version, such as `2024-10-21`: models are then reached by deployment. @default the v1 address */
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
 * OpenAI's models on Azure; the id of a model is the name of its deployment. Azure's prices are not in the catalog.
 * Throws `invalid-request` with the path and the expectation for wrong options.
 */
export function azureOpenai(options: AzureOpenaiOptions): Provider {
  const parsed = parseOptions('azureOpenai', schema, options)
  const { name = 'azure', resource, baseUrl, apiVersion, token, apiKey, models, defaultPrice } = parsed
  if (resource === undefined && baseUrl === undefined) {
    throw new GatewayError(
      'invalid-request',
      'azureOpenai: resource: expected the name of the resource, got undefined.',
    )
  }
  const known = parsed.prices?.over([], 'azure') ?? []
  requirePrice('azureOpenai', known, parsed)
  const root = trimSlash(baseUrl ?? `https://${resource}.openai.azure.com`)
  const credentials =
    token === undefined
      ? keyCredentials({ who: name, header: 'api-key', apiKey, variables: ['AZURE_OPENAI_API_KEY', 'AZURE_API_KEY'] })
      : keyCredentials({ who: name, apiKey: token, variables: [] })
  return httpProvider({
    name,
    format: CHAT,
    ...createModelBook({ who: 'azureOpenai', family: 'gpt', known, entries: models, defaultPrice }),
    urls: apiVersion === undefined ? v1Addresses(root) : deploymentAddresses(root, apiVersion),
    ...credentials,
    headers: { ...credentials.headers, ...parsed.headers },
    ...transportOf(parsed.fetch),
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
