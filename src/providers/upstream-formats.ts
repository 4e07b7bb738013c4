import type { UpstreamFormatModule } from '../formats/format.ts'

// Most gateways have upstreams of one format or two: the code of each is loaded with its first request.

export const CHAT: UpstreamFormatModule = {
  dialect: 'openai',
  load: async () => (await import('../formats/chat/upstream.ts')).chatUpstream,
}

export const MESSAGES: UpstreamFormatModule = {
  dialect: 'anthropic',
  load: async () => (await import('../formats/messages/upstream.ts')).messagesUpstream,
}

export const RESPONSES: UpstreamFormatModule & { readonly dialect: 'responses' } = {
  dialect: 'responses',
  load: async () => (await import('../formats/responses/upstream.ts')).responsesUpstream,
}

export const GEMINI: UpstreamFormatModule = {
  dialect: 'gemini',
  load: async () => (await import('../formats/gemini/upstream.ts')).geminiUpstream,
}
