import type { StreamPart } from '../../src/core/completion.ts'
import { GatewayError } from '../../src/core/errors.ts'
import { asObject, asString, type JsonObject } from '../../src/core/json.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import type { WholeFormat } from './two-way-formats.ts'

/** Creates a prompt with one user message. */
export function tinyPrompt(
  text: string,
  options: { readonly stream?: boolean; readonly maxTokens?: number } = {},
): Prompt {
  return {
    native: { dialect: 'chat', value: {} },
    model: 'test/model',
    messages: [{ role: 'user', parts: [{ type: 'text', text }] }],
    settings: options.maxTokens === undefined ? {} : { maxTokens: options.maxTokens },
    tools: [],
    stream: options.stream === true,
  }
}

function unsupported(): never {
  throw new Error('The tiny format supports upstreams only')
}

/**
 * The upstream half of a minimal format, for tests of providers without a real format.
 * A whole response is `{text}`; the events of a stream are `{text}`, then `{end: true}`.
 */
export const tinyFormat: WholeFormat = {
  dialect: 'chat',
  readPrompt: unsupported,
  writeCompletion: unsupported,
  createStreamWriter: unsupported,
  writeFailure: unsupported,
  writeFailureEvent: unsupported,
  heartbeat: 'comment',
  writePrompt(prompt, model) {
    const body: JsonObject = { model, stream: prompt.stream, max_tokens: prompt.settings.maxTokens, question: 'tiny' }
    return { body: JSON.stringify(body), ignored: ['seed'] }
  },
  readCompletion(body, text) {
    const words = asString(body['text'])
    if (words === undefined) throw new GatewayError('upstream', 'The upstream sent no text.')
    const native = { dialect: 'chat', value: body, ...(text !== undefined && { text }) } as const
    return { id: 'tiny', model: 'tiny', parts: [{ type: 'text', text: words }], finish: 'stop', native }
  },
  createReader() {
    let finished = false
    const read = (frame: { readonly data: string }): { readonly parts: readonly StreamPart[] } => {
      const event = frame.data === '[DONE]' ? { end: true } : asObject(JSON.parse(frame.data))
      if (event === undefined) throw new TypeError('no object')
      if ('error' in event) throw new GatewayError('upstream', 'The upstream reports an error.')
      finished ||= event['finish'] === true
      if (event['end'] === true) return { parts: [{ type: 'done' }] }
      return { parts: [{ type: 'text-delta', text: asString(event['text']) ?? '' }] }
    }
    return Object.assign(read, { isComplete: () => finished })
  },
  readFailure(status, body) {
    const message = asString(body?.['message']) ?? `The upstream answered with status ${status}.`
    if (status === 400) return new GatewayError('upstream-rejected', message, { upstream: { status } })
    if (status === 429) return new GatewayError('upstream-rate-limited', message)
    return new GatewayError(status === 503 ? 'overloaded' : 'upstream', message)
  },
}
