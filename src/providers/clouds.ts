import * as z from 'zod/mini'
import type { Provider } from '../core/ports.ts'
import { setMembers } from '../core/splice-json.ts'
import type { UpstreamFormatModule, WrittenPrompt } from '../formats/format.ts'
import {
  CHAT_FORMAT,
  type EndpointUrl,
  GEMINI_FORMAT,
  type HttpProviderOptions,
  MESSAGES_FORMAT,
} from './http-provider.ts'
import { bodyText, type SignRequest } from './http-request.ts'
import {
  type ApiKey,
  apiKeyOptionSchema,
  functionSchema,
  keyCredentials,
  optionError,
  parseOptions,
  trimTrailingSlashes,
} from './provider-options.ts'
import { pricedModels, vendorFields, type VendorOptions, vendorProvider } from './vendor.ts'
import { knownModelsOf, vendorSchema } from './vendors.ts'

/** Options of `azureOpenai()`. */
export interface AzureOpenaiOptions extends VendorOptions {
  /** The resource name in `https://<resource>.openai.azure.com`. `baseUrl` replaces this URL. */
  readonly resource?: string | undefined
  /** An api-version such as `2024-10-21`. Call URLs then contain the deployment name. @default the v1 endpoints */
  readonly apiVersion?: string | undefined
  /** An Entra ID token, or a function that returns the token for each call. Used instead of a key. */
  readonly token?: ApiKey | undefined
}

const azureSchema: z.ZodMiniType<AzureOpenaiOptions> = z.strictObject({
  ...vendorFields,
  resource: z.exactOptional(
    z.string().check(z.regex(/^[a-z0-9][a-z0-9-]*$/i, { error: 'expected the name of an Azure resource' })),
  ),
  apiVersion: z.exactOptional(
    z.string().check(z.regex(/^[\w-]+$/, { error: 'expected a version such as 2024-10-21' })),
  ),
  token: z.exactOptional(apiKeyOptionSchema),
})

/**
 * Creates a provider for Azure OpenAI. The model id is the deployment name. The catalog has no Azure prices. Throws
 * `invalid-request` for invalid options.
 *
 * @example
 * const azure = azureOpenai({
 *   resource: 'my-resource',
 *   models: [{ id: 'my-deployment', price: { input: 0.25, output: 2 } }],
 * })
 * const gateway = createGateway({ providers: [azure] }) // azure/my-deployment
 */
export function azureOpenai(options: AzureOpenaiOptions): Provider {
  const parsed = parseOptions('azureOpenai', azureSchema, options)
  const { name = 'azure', resource, baseUrl, apiVersion, token, apiKey } = parsed
  if (resource === undefined && baseUrl === undefined)
    throw optionError('azureOpenai', 'resource: expected the name of the resource, got undefined')
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

/**
 * Creates a provider for Gemini models. Without `apiKey`, the key is read from GEMINI_API_KEY or GOOGLE_API_KEY. Throws
 * `invalid-request` for invalid options.
 *
 * @example
 * const gateway = createGateway({ providers: [gemini()] }) // gemini/gemini-2.5-flash, …
 */
export function gemini(options: VendorOptions = {}): Provider {
  const parsed = parseOptions('gemini', vendorSchema, options)
  const { name = 'gemini', apiKey, baseUrl = 'https://generativelanguage.googleapis.com' } = parsed
  const root = `${trimTrailingSlashes(baseUrl).replace(/\/v1beta$/, '')}/v1beta`
  const variables = ['GEMINI_API_KEY', 'GOOGLE_API_KEY']
  return vendorProvider(parsed, {
    functionName: 'gemini',
    name,
    family: 'gemini',
    known: pricedModels('gemini', 'gemini', parsed, knownModelsOf('gemini')),
    format: GEMINI_FORMAT,
    urls: { create: generateContentUrl(`${root}/models`), ping: `${root}/models?pageSize=1` },
    credentials: keyCredentials({ provider: name, header: 'x-goog-api-key', apiKey, variables }),
  })
}

/** Options of `vertex()`. */
export interface VertexOptions extends VendorOptions {
  /** The id of the Google Cloud project. */
  readonly project: string
  /** @default 'global' */
  readonly location?: string | undefined
  /** The publisher of the models, which determines the format. @default 'google' */
  readonly publisher?: 'google' | 'anthropic' | undefined
  /** Signs each call. @default sends `apiKey` or GOOGLE_VERTEX_ACCESS_TOKEN as a bearer token */
  readonly sign?: SignRequest
}

const resourceLabelSchema = z
  .string()
  .check(z.regex(/^[\w-]+$/, { error: 'expected letters, digits, dashes and underscores' }))

const vertexSchema: z.ZodMiniType<VertexOptions> = z.strictObject({
  ...vendorFields,
  project: resourceLabelSchema,
  location: z.exactOptional(resourceLabelSchema),
  publisher: z.exactOptional(z.enum(['google', 'anthropic'], { error: 'expected google or anthropic' })),
  sign: z.exactOptional(functionSchema<SignRequest>()),
})

/**
 * Creates a provider for Google and Anthropic models on Vertex AI. The catalog has no Vertex prices. Throws
 * `invalid-request` for invalid options.
 *
 * @example
 * const claude = vertex({
 *   project: 'my-project',
 *   publisher: 'anthropic',
 *   models: [{ id: 'claude-sonnet-4-5', price: { input: 3, output: 15 } }],
 * })
 * const gateway = createGateway({ providers: [claude] })
 */
export function vertex(options: VertexOptions): Provider {
  const parsed = parseOptions('vertex', vertexSchema, options)
  const { name = 'vertex', project, location = 'global', publisher = 'google', apiKey, sign } = parsed
  const host = location === 'global' ? 'aiplatform.googleapis.com' : `${location}-aiplatform.googleapis.com`
  const root = trimTrailingSlashes(parsed.baseUrl ?? `https://${host}`)
  const modelsUrl = `${root}/v1/projects/${project}/locations/${location}/publishers/${publisher}/models`
  const isGoogle = publisher === 'google'
  return vendorProvider(parsed, {
    functionName: 'vertex',
    name,
    family: isGoogle ? 'gemini' : 'claude',
    known: pricedModels('vertex', 'vertex', parsed),
    format: isGoogle ? GEMINI_FORMAT : MESSAGES_ON_VERTEX,
    urls: {
      create: isGoogle
        ? generateContentUrl(modelsUrl)
        : (id, isStream) => `${modelsUrl}/${id}:${isStream ? 'streamRawPredict' : 'rawPredict'}`,
    },
    forwardedHeaders: isGoogle ? [] : ['anthropic-beta'],
    credentials:
      sign === undefined
        ? keyCredentials({ provider: name, apiKey, variables: ['GOOGLE_VERTEX_ACCESS_TOKEN'] })
        : { sign },
  })
}

function generateContentUrl(modelsUrl: string): EndpointUrl {
  return (id, isStream) => `${modelsUrl}/${id}:${isStream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`
}

const MESSAGES_ON_VERTEX: UpstreamFormatModule = {
  dialect: 'anthropic',
  load: async () => {
    const format = await MESSAGES_FORMAT.load()
    return {
      ...format,
      writePrompt: (prompt, model) => withVersion(format.writePrompt(prompt, model)),
      writeInSteps: function* (prompt, model) {
        const { writeInSteps } = format
        return withVersion(
          writeInSteps === undefined ? format.writePrompt(prompt, model) : yield* writeInSteps(prompt, model),
        )
      },
    }
  },
}

/** The model is part of the URL, not of the body. */
function withVersion({ body, ignored }: WrittenPrompt): WrittenPrompt {
  const changes = { model: undefined, anthropic_version: '"vertex-2023-10-16"' }
  return { body: setMembers(bodyText(body), changes), ignored }
}
