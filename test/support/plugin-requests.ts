import OpenAI from 'openai'
import type { Stage } from './stage.ts'

/** The end of a request as an official client reports it. */
export interface ClientResult {
  readonly text: string
  /** Undefined if the client threw no error. */
  readonly error: { readonly status: number | undefined; readonly message: string } | undefined
  readonly finish: string | null | undefined
}

/** A way to send a prompt with an official client. */
export interface Kind {
  readonly name: string
  readonly isStream: boolean
  ask(stage: Stage, model: string, text: string): Promise<ClientResult>
}

interface Received {
  text: string
  finish?: string | null | undefined
}

function kind(
  name: string,
  isStream: boolean,
  receive: (stage: Stage, model: string, text: string, received: Received) => Promise<void>,
): Kind {
  return {
    name,
    isStream,
    ask: async (stage, model, text) => {
      const received: Received = { text: '' }
      try {
        await receive(stage, model, text, received)
        return { text: received.text, finish: received.finish, error: undefined }
      } catch (error) {
        if (!(error instanceof Error)) throw error
        const status = 'status' in error && typeof error.status === 'number' ? error.status : undefined
        return { text: received.text, finish: received.finish, error: { status, message: error.message } }
      }
    },
  }
}

const MAX_TOKENS = 50

/** Each format, whole and as a stream. */
export const KINDS: readonly Kind[] = [
  kind('a chat completion', false, async ({ openai }, model, content, received) => {
    const messages = [{ role: 'user' as const, content }]
    const { choices } = await openai.chat.completions.create({ model, messages, max_tokens: MAX_TOKENS })
    received.text = choices[0]?.message.content ?? ''
    received.finish = choices[0]?.finish_reason
  }),
  kind('a chat stream', true, async ({ openai }, model, content, received) => {
    const messages = [{ role: 'user' as const, content }]
    const stream = await openai.chat.completions.create({ model, messages, max_tokens: MAX_TOKENS, stream: true })
    for await (const { choices } of stream) {
      received.text += choices[0]?.delta.content ?? ''
      received.finish = choices[0]?.finish_reason ?? received.finish
    }
  }),
  kind('a message', false, async ({ anthropic }, model, content, received) => {
    const messages = [{ role: 'user' as const, content }]
    const message = await anthropic.messages.create({ model, messages, max_tokens: MAX_TOKENS })
    received.text = message.content.map((block) => (block.type === 'text' ? block.text : '')).join('')
    received.finish = message.stop_reason
  }),
  kind('a message stream', true, async ({ anthropic }, model, content, received) => {
    const messages = [{ role: 'user' as const, content }]
    const stream = await anthropic.messages.create({ model, messages, max_tokens: MAX_TOKENS, stream: true })
    for await (const event of stream) {
      if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') received.text += event.delta.text
      if (event.type === 'message_delta') received.finish = event.delta.stop_reason
    }
  }),
  kind('a response', false, async ({ openai }, model, input, received) => {
    const response = await openai.responses.create({ model, input, max_output_tokens: MAX_TOKENS })
    received.text = response.output_text
    received.finish = response.status
  }),
  kind('a response stream', true, async ({ openai }, model, input, received) => {
    const stream = await openai.responses.create({ model, input, max_output_tokens: MAX_TOKENS, stream: true })
    for await (const event of stream) {
      if (event.type === 'response.output_text.delta') received.text += event.delta
      if (event.type === 'response.completed' || event.type === 'response.incomplete') {
        received.finish = event.response.status
      }
      if (event.type === 'error') throw new OpenAI.APIError(undefined, event, event.message, undefined)
      if (event.type === 'response.failed') throw new Error(event.response.error?.message ?? 'failed')
    }
  }),
]
