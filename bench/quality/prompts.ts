import type { Message, Part, Prompt } from '../../src/core/prompt.ts'
import type { ChatMessage } from './data.ts'

/** Converts chat messages to a canonical prompt, without a wire format. */
export function promptOf(messages: readonly ChatMessage[]): Prompt {
  return {
    native: { dialect: 'chat', value: {} },
    model: 'mock/large',
    messages: messages.map(messageOf),
    settings: {},
    tools: [],
    stream: false,
  }
}

function messageOf(message: ChatMessage): Message {
  if (message.role === 'tool') {
    const content: Part[] = [{ type: 'text', text: message.content ?? '' }]
    return {
      role: 'tool',
      parts: [{ type: 'tool-result', callId: message.tool_call_id ?? '', content, failed: false }],
    }
  }
  const text: Part[] = message.content === null ? [] : [{ type: 'text', text: message.content }]
  const calls = (message.tool_calls ?? []).map((call): Part => ({
    type: 'tool-call',
    id: call.id,
    name: call.function.name,
    input: call.function.arguments,
  }))
  return { role: message.role, parts: [...text, ...calls] }
}
