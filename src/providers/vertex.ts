import * as z from 'zod/mini'
import type { Provider } from '../core/ports.ts'
import type { UpstreamFormatModule } from '../formats/format.ts'
import { GEMINI, MESSAGES } from './upstream-formats.ts'
import { parseObject } from '../upstream/upstream-failure.ts'
import { functionSchema } from './bedrock.ts'
import { keyCredentials, type SignRequest } from './credentials.ts'
import { generateAddress } from './gemini.ts'
import { httpProvider, type Address } from './http-provider.ts'
import { createModelBook } from './model-book.ts'
import { transportOf } from './openai-compatible.ts'
import { parseOptions, trimSlash } from './provider-options.ts'
import { requirePrice, vendorFields, type VendorOptions } from './vendors.ts'

/** Options of `vertex()`. */
export interface VertexOptions extends VendorOptions {
  readonly project: string
  /** @default 'global' */
  readonly location?: string
  /** Whose models: each publisher has its own format. @default 'google' */
  readonly publisher?: 'google' | 'anthropic'
  /** Signs each call in your own way. @default `apiKey`, mostly a function, returns an OAuth access token */
  readonly sign?: SignRequest
}

const label = z.string().check(z.regex(/^[\w-]+$/, { error: 'expected letters, digits, dashes and underscores' }))

const schema: z.ZodMiniType<VertexOptions> = z.strictObject({
  ...vendorFields,
  project: label,
  location: z.exactOptional(label),
  publisher: z.exactOptional(z.enum(['google', 'anthropic'], { error: 'expected google or anthropic' })),
  sign: z.exactOptional(functionSchema<SignRequest>()),
})

/**
 * Models of Google and Anthropic on Vertex AI. Vertex's prices are not in the catalog. Throws `invalid-request` with
 * the path and the expectation for wrong options.
 */
export function vertex(options: VertexOptions): Provider {
  const parsed = parseOptions('vertex', schema, options)
  const { name = 'vertex', project, location = 'global', publisher = 'google', models, defaultPrice } = parsed
  const known = parsed.prices?.over([], 'vertex') ?? []
  requirePrice('vertex', known, parsed)
  const host = location === 'global' ? 'aiplatform.googleapis.com' : `${location}-aiplatform.googleapis.com`
  const root = trimSlash(parsed.baseUrl ?? `https://${host}`)
  const published = `${root}/v1/projects/${project}/locations/${location}/publishers/${publisher}/models`
  const isGoogle = publisher === 'google'
  const credentials =
    parsed.sign === undefined
      ? keyCredentials({ who: name, apiKey: parsed.apiKey, variables: ['GOOGLE_VERTEX_ACCESS_TOKEN'] })
      : { headers: {}, sign: parsed.sign }
  return httpProvider({
    name,
    format: isGoogle ? GEMINI : MESSAGES_ON_VERTEX,
    ...createModelBook({
      who: 'vertex',
      family: isGoogle ? 'gemini' : 'claude',
      known,
      entries: models,
      defaultPrice,
    }),
    urls: { create: isGoogle ? generateAddress(published) : predictAddress(published) },
    passes: isGoogle ? [] : ['anthropic-beta'],
    ...credentials,
    headers: { ...credentials.headers, ...parsed.headers },
    ...transportOf(parsed.fetch),
  })
}

function predictAddress(root: string): Address {
  return (id, isStream) => `${root}/${id}:${isStream ? 'streamRawPredict' : 'rawPredict'}`
}

/** The message format with the model in the address and the version in the body. */
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
