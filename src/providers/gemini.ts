import * as z from 'zod/mini'
import type { Provider } from '../core/ports.ts'
import { GEMINI } from './upstream-formats.ts'
import { keyCredentials } from './credentials.ts'
import { httpProvider } from './http-provider.ts'
import { createModelBook } from './model-book.ts'
import { transportOf } from './openai-compatible.ts'
import { parseOptions, trimSlash } from './provider-options.ts'
import { knownModelsOf } from './vendor-models.ts'
import { vendorFields, type VendorOptions } from './vendors.ts'

const schema: z.ZodMiniType<VendorOptions> = z.strictObject(vendorFields)

/** Google's models by their own format. Throws `invalid-request` with the path and the expectation for wrong options. */
export function gemini(options: VendorOptions = {}): Provider {
  const parsed = parseOptions('gemini', schema, options)
  const { name = 'gemini', baseUrl = 'https://generativelanguage.googleapis.com', models, defaultPrice } = parsed
  const root = `${trimSlash(baseUrl).replace(/\/v1beta$/, '')}/v1beta`
  const credentials = keyCredentials({
    who: name,
    header: 'x-goog-api-key',
    apiKey: parsed.apiKey,
    variables: ['GEMINI_API_KEY', 'GOOGLE_API_KEY'],
  })
  return httpProvider({
    name,
    format: GEMINI,
    ...createModelBook({
      who: 'gemini',
      family: 'gemini',
      known: parsed.prices?.over(knownModelsOf('gemini'), 'gemini') ?? knownModelsOf('gemini'),
      entries: models,
      defaultPrice,
    }),
    urls: { create: generateAddress(`${root}/models`), ping: `${root}/models?pageSize=1` },
    ...credentials,
    headers: { ...credentials.headers, ...parsed.headers },
    ...transportOf(parsed.fetch),
  })
}

/** The address of `generateContent` for the models under `root`. */
export function generateAddress(root: string): (id: string, isStream: boolean) => string {
  return (id, isStream) => `${root}/${id}:${isStream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`
}
