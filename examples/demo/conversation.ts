import { readFileSync } from 'node:fs'

/** A message of the chat format, as far as the demo makes them. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string | null
  readonly tool_calls?: readonly {
    readonly id: string
    readonly type: 'function'
    readonly function: { readonly name: string; readonly arguments: string }
  }[]
  readonly tool_call_id?: string
}

export interface Conversation {
  readonly name: string
  readonly messages: readonly ChatMessage[]
}

/** The first conversation of a JSON Lines file, `{ id, messages }` per line. Adds a question when the last message is not one. */
export function conversationFrom(file: string): Conversation {
  const [line] = readFileSync(file, 'utf8').split('\n', 1)
  const { id, messages } = JSON.parse(line ?? '') as { readonly id?: string; readonly messages: readonly ChatMessage[] }
  const open = messages.at(-1)?.role === 'user'
  const question: ChatMessage = { role: 'user', content: 'What was decided so far, and what is still open?' }
  return { name: `${file}: ${id ?? 'first conversation'}`, messages: open ? messages : [...messages, question] }
}
