import type Anthropic from '@anthropic-ai/sdk'
import type { ChatMessage } from './conversation.ts'

type Block = Anthropic.ContentBlockParam
type Turn = { role: 'user' | 'assistant'; content: Block[] }

/** The same conversation in the message format: tool results in user messages, roles alternating. */
export function toMessages(messages: readonly ChatMessage[]): { system: string; messages: Anthropic.MessageParam[] } {
  const system = messages.filter((message) => message.role === 'system').map((message) => message.content ?? '')
  const turns: Turn[] = []
  for (const message of messages) {
    if (message.role === 'system') continue
    const role = message.role === 'assistant' ? 'assistant' : 'user'
    const last = turns.at(-1)
    if (last?.role === role) last.content.push(...blocksOf(message))
    else turns.push({ role, content: blocksOf(message) })
  }
  return { system: system.join('\n\n'), messages: turns }
}

function blocksOf(message: ChatMessage): Block[] {
  if (message.role === 'tool') {
    return [{ type: 'tool_result', tool_use_id: message.tool_call_id ?? '', content: message.content ?? '' }]
  }
  const text: Block[] =
    message.content === null || message.content === '' ? [] : [{ type: 'text', text: message.content }]
  const calls = (message.tool_calls ?? []).map((call): Block => ({
    type: 'tool_use',
    id: call.id,
    name: call.function.name,
    input: parse(call.function.arguments),
  }))
  return [...text, ...calls]
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return { raw: text }
  }
}
