import * as z from 'zod/mini'
import type { Provider } from '../core/ports.ts'
import type { UpstreamFormatModule } from '../formats/format.ts'
import { parseObject } from '../upstream/upstream-failure.ts'
import type { Address } from './http-provider.ts'
import type { SignRequest } from './http-request.ts'
import { functionSchema, parseOptions, trimSlash } from './provider-options.ts'
import {
  GEMINI,
  keyCredentials,
  MESSAGES,
  pricedModels,
  vendorFields,
  vendorProvider,
  type VendorOptions,
} from './vendor.ts'
import { knownModelsOf } from './vendors.ts'

const geminiSchema: z.ZodMiniType<VendorOptions> = z.strictObject(vendorFields)

/**
 * Creates a provider for Gemini models in their own format. Without `apiKey`, the key is read from GEMINI_API_KEY or
 * GOOGLE_API_KEY. Throws `invalid-request` with the path and the expected value for invalid options.
 */
export function gemini(options: VendorOptions = {}): Provider {
  const parsed = parseOptions('gemini', geminiSchema, options)
  const { name = 'gemini', apiKey, baseUrl = 'https://generativelanguage.googleapis.com' } = parsed
  const root = `${trimSlash(baseUrl).replace(/\/v1beta$/, '')}/v1beta`
  const variables = ['GEMINI_API_KEY', 'GOOGLE_API_KEY']
  return vendorProvider(parsed, {
    who: 'gemini',
    name,
    family: 'gemini',
    known: pricedModels('gemini', 'gemini', parsed, knownModelsOf('gemini')),
    format: GEMINI,
    urls: { create: generateAddress(`${root}/models`), ping: `${root}/models?pageSize=1` },
    credentials: keyCredentials({ who: name, header: 'x-goog-api-key', apiKey, variables }),
  })
}

/** Options of `vertex()`. */
export interface VertexOptions extends VendorOptions {
  readonly project: string
  /** @default 'global' */
  readonly location?: string
  /** The publisher of the models. Each publisher has its own format. @default 'google' */
  readonly publisher?: 'google' | 'anthropic'
  /** Signs each call. @default `apiKey`, mostly a function, returns an OAuth access token */
  readonly sign?: SignRequest
}

const label = z.string().check(z.regex(/^[\w-]+$/, { error: 'expected letters, digits, dashes and underscores' }))

const vertexSchema: z.ZodMiniType<VertexOptions> = z.strictObject({
  ...vendorFields,
  project: label,
  location: z.exactOptional(label),
  publisher: z.exactOptional(z.enum(['google', 'anthropic'], { error: 'expected google or anthropic' })),
  sign: z.exactOptional(functionSchema<SignRequest>()),
})

/**
 * Creates a provider for models of Google and Anthropic on Vertex AI. The catalog has no Vertex prices. Throws `invalid-request` with
 * the path and the expected value for invalid options.
 */
export function vertex(options: VertexOptions): Provider {
  const parsed = parseOptions('vertex', vertexSchema, options)
  const { name = 'vertex', project, location = 'global', publisher = 'google', apiKey, sign } = parsed
  const host = location === 'global' ? 'aiplatform.googleapis.com' : `${location}-aiplatform.googleapis.com`
  const root = trimSlash(parsed.baseUrl ?? `https://${host}`)
  const published = `${root}/v1/projects/${project}/locations/${location}/publishers/${publisher}/models`
  const isGoogle = publisher === 'google'
  return vendorProvider(parsed, {
    who: 'vertex',
    name,
    family: isGoogle ? 'gemini' : 'claude',
    known: pricedModels('vertex', 'vertex', parsed),
    format: isGoogle ? GEMINI : MESSAGES_ON_VERTEX,
    urls: { create: isGoogle ? generateAddress(published) : predictAddress(published) },
    passes: isGoogle ? [] : ['anthropic-beta'],
    credentials:
      sign === undefined ? keyCredentials({ who: name, apiKey, variables: ['GOOGLE_VERTEX_ACCESS_TOKEN'] }) : { sign },
  })
}

function generateAddress(root: string): Address {
  return (id, isStream) => `${root}/${id}:${isStream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`
}

function predictAddress(root: string): Address {
  return (id, isStream) => `${root}/${id}:${isStream ? 'streamRawPredict' : 'rawPredict'}`
}

/** The message format with the model in the URL and the version in the body. */
const MESSAGES_ON_VERTEX: UpstreamFormatModule = {
  dialect: 'anthropic',
  load: async () => {
    const format = await MESSAGES.load()
    return {
      ...format,
      writePrompt(prompt, model) {
        const { body, ignored } = format.writePrompt(prompt, model)
        const text = typeof body === 'string' ? body : new TextDecoder().decode(body)
        const { model: _model, ...fields } = parseObject(text) ?? {}
        return { body: JSON.stringify({ anthropic_version: 'vertex-2023-10-16', ...fields }), ignored }
      },
    }
  },
}
