import type { SseEvent } from '../../src/core/completion.ts'
import type { Dialect } from '../../src/core/prompt.ts'

export { CUT, gate, HANG } from './upstream.ts'

/** Returns the events of a stream up to its first text. */
export function eventsUntilText(dialect: Dialect): readonly SseEvent[] {
  return dialect === 'chat' ? chatEvents() : messageEvents()
}

function chatEvents(): readonly SseEvent[] {
  const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'large' }
  return ['', 'Once'].map((content) => ({
    data: JSON.stringify({
      ...head,
      choices: [{ index: 0, delta: { role: 'assistant', content }, finish_reason: null }],
    }),
  }))
}

function messageEvents(): readonly SseEvent[] {
  const message = {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'large',
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: 5, output_tokens: 1 },
  }
  return [
    namedEvent('message_start', { message }),
    namedEvent('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    namedEvent('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'Once' } }),
  ]
}

function namedEvent(type: string, value: object): SseEvent {
  return { event: type, data: JSON.stringify({ type, ...value }) }
}
