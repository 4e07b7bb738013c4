import * as z from 'zod/mini'
import type { Provider } from '../core/ports.ts'
import { readCatalog, type KnownModel } from './model-book.ts'
import catalog from './models/anthropic.json' with { type: 'json' }
import { parseOptions, trimSlash } from './provider-options.ts'
import { commonFields, keyCredentials, MESSAGES, pricedModels, vendorProvider, type VendorOptions } from './vendor.ts'

/** Options of `anthropic()`. */
export interface AnthropicOptions extends Omit<VendorOptions, 'headers'> {
  /** With or without `/v1` at its end. @default 'https://api.anthropic.com' */
  readonly baseUrl?: string
  /** Sent as `anthropic-version` unless the caller sends one. @default '2023-06-01' */
  readonly version?: string
}

const schema: z.ZodMiniType<AnthropicOptions> = z.strictObject({
  ...commonFields,
  version: z.exactOptional(z.iso.date({ error: 'expected a day, YYYY-MM-DD' })),
})

export const ANTHROPIC_MODELS: readonly KnownModel[] = readCatalog(catalog.models, {
  family: 'claude',
  small: catalog.small,
})

/**
 * Creates a provider for Anthropic, or for any service with the messages format. Without `apiKey`, the key is read
 * from ANTHROPIC_API_KEY. Throws `invalid-request` with the path and the expected value for invalid options.
 */
export function anthropic(options: AnthropicOptions = {}): Provider {
  const parsed = parseOptions('anthropic', schema, options)
  const { name = 'anthropic', apiKey, baseUrl = 'https://api.anthropic.com', version = '2023-06-01' } = parsed
  const root = `${trimSlash(baseUrl).replace(/\/v1$/, '')}/v1`
  return vendorProvider(parsed, {
    who: 'anthropic',
    name,
    family: 'claude',
    known: pricedModels('anthropic', 'anthropic', parsed, ANTHROPIC_MODELS),
    format: MESSAGES,
    urls: { create: `${root}/messages`, count: `${root}/messages/count_tokens`, ping: `${root}/models?limit=1` },
    headers: { 'anthropic-version': version },
    passes: ['anthropic-version', 'anthropic-beta'],
    credentials: keyCredentials({ who: name, header: 'x-api-key', apiKey, variables: ['ANTHROPIC_API_KEY'] }),
  })
}
