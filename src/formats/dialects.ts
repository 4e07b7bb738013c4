import type { Dialect, UpstreamDialect } from '../core/prompt.ts'
import type { ClientFormat, UpstreamFormat } from './format.ts'

/** Each format is loaded with the first request that needs it. */
export const CLIENT_FORMATS: Readonly<Record<Dialect, () => Promise<ClientFormat>>> = {
  chat: async () => (await import('./chat/client.ts')).chatClient,
  messages: async () => (await import('./messages/client.ts')).messagesClient,
  responses: async () => (await import('./responses/client.ts')).responsesClient,
}

/** As `CLIENT_FORMATS`, for upstreams. */
export const UPSTREAM_FORMATS: Readonly<Record<UpstreamDialect, () => Promise<UpstreamFormat>>> = {
  chat: async () => (await import('./chat/upstream.ts')).chatUpstream,
  messages: async () => (await import('./messages/upstream.ts')).messagesUpstream,
  responses: async () => (await import('./responses/upstream.ts')).responsesUpstream,
  gemini: async () => (await import('./gemini/upstream.ts')).geminiUpstream,
}
