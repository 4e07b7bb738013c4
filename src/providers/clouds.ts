import { checkOptions, functionCheck, matching, oneOf, type OptionCheck, optionsOf } from '../core/check-options.ts'
import type { Provider } from '../core/ports.ts'
import { setMembers } from '../core/splice-json.ts'
import type { UpstreamFormatModule, WrittenPrompt } from '../formats/format.ts'
import { CHAT_FORMAT, GEMINI_FORMAT, type HttpProviderOptions, MESSAGES_FORMAT } from './http-provider.ts'
import { bodyText, type SignRequest, type EndpointUrl } from './http-request.ts'
import { type ApiKey, checkApiKey, keyCredentials, optionError, trimTrailingSlashes } from './provider-options.ts'
import { pricedModels, VENDOR_CHECKS, type VendorOptions, vendorProvider } from './vendor.ts'
import { checkVendor, knownModelsOf } from './vendors.ts'

/** Options of `azureOpenai()`. */
export interface AzureOpenaiOptions extends VendorOptions {
  /** The resource name in `https://<resource>.openai.azure.com`. `baseUrl` replaces this URL. */
  readonly resource?: string | undefined
  /** An api-version such as `2024-10-21`. Call URLs then contain the deployment name. @default the v1 endpoints */
  readonly apiVersion?: string | undefined
  /** An Entra ID token, or a function that returns the token for each call. Used instead of a key. */
  readonly token?: ApiKey | undefined
}

const checkAzure: OptionCheck = optionsOf({
  ...VENDOR_CHECKS,
  resource: matching(/^[a-z0-9][a-z0-9-]*$/i, 'the name of an Azure resource'),
  apiVersion: matching(/^[\w-]+$/, 'a version such as 2024-10-21'),
  token: checkApiKey,
} satisfies Record<keyof AzureOpenaiOptions, OptionCheck>)

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
  checkOptions('azureOpenai', options, checkAzure)
  const { name = 'azure', resource, baseUrl, apiVersion, token, apiKey } = options
  if (resource === undefined && baseUrl === undefined)
    throw optionError('azureOpenai', 'resource: expected the name of the resource, got undefined')
  const root = trimTrailingSlashes(baseUrl ?? `https://${resource}.openai.azure.com`)
  const variables = ['AZURE_OPENAI_API_KEY', 'AZURE_API_KEY']
  return vendorProvider(options, {
    functionName: 'azureOpenai',
    name,
    family: 'gpt',
    known: pricedModels('azureOpenai', 'azure', options),
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
  checkOptions('gemini', options, checkVendor)
  const { name = 'gemini', apiKey, baseUrl = 'https://generativelanguage.googleapis.com' } = options
  const root = `${trimTrailingSlashes(baseUrl).replace(/\/v1beta$/, '')}/v1beta`
  const variables = ['GEMINI_API_KEY', 'GOOGLE_API_KEY']
  return vendorProvider(options, {
    functionName: 'gemini',
    name,
    family: 'gemini',
    known: pricedModels('gemini', 'gemini', options, knownModelsOf('gemini')),
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

const checkLabel = matching(/^[\w-]+$/, 'letters, digits, dashes and underscores')

const checkVertex: OptionCheck = optionsOf(
  {
    ...VENDOR_CHECKS,
    project: checkLabel,
    location: checkLabel,
    publisher: oneOf('google', 'anthropic'),
    sign: functionCheck('sign(request)'),
  } satisfies Record<keyof VertexOptions, OptionCheck>,
  ['project'],
)

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
  checkOptions('vertex', options, checkVertex)
  const { name = 'vertex', project, location = 'global', publisher = 'google', apiKey, sign } = options
  const host = location === 'global' ? 'aiplatform.googleapis.com' : `${location}-aiplatform.googleapis.com`
  const root = trimTrailingSlashes(options.baseUrl ?? `https://${host}`)
  const modelsUrl = `${root}/v1/projects/${project}/locations/${location}/publishers/${publisher}/models`
  const isGoogle = publisher === 'google'
  return vendorProvider(options, {
    functionName: 'vertex',
    name,
    family: isGoogle ? 'gemini' : 'claude',
    known: pricedModels('vertex', 'vertex', options),
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
  dialect: 'messages',
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
