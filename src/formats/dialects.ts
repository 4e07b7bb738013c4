import type { Dialect, UpstreamDialect } from '../core/prompt.ts'
import type { ClientFormat, UpstreamFormat } from './format.ts'

/** Each format is loaded with the first request that needs it. */
export const CLIENT_FORMATS: Readonly<Record<Dialect, () => Promise<ClientFormat>>> = {
  openai: async () => (await import('./chat/client.ts')).chatClient,
  anthropic: async () => (await import('./messages/client.ts')).messagesClient,
  responses: async () => (await import('./responses/client.ts')).responsesClient,
}

/** As `CLIENT_FORMATS`, for upstreams. */
export const UPSTREAM_FORMATS: Readonly<Record<UpstreamDialect, () => Promise<UpstreamFormat>>> = {
  openai: async () => (await import('./chat/upstream.ts')).chatUpstream,
  anthropic: async () => (await import('./messages/upstream.ts')).messagesUpstream,
  responses: async () => (await import('./responses/upstream.ts')).responsesUpstream,
  gemini: async () => (await import('./gemini/upstream.ts')).geminiUpstream,
}
