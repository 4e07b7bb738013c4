import { readFileSync } from 'node:fs'

/** A message of the chat format with the fields that the demo uses. */
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

/** Returns the first conversation of a JSON Lines file, `{ id, messages }` per line. Adds a question if the last message is not from the user. */
export function conversationFrom(file: string): Conversation {
  const [line] = readFileSync(file, 'utf8').split('\n', 1)
  const { id, messages } = JSON.parse(line ?? '') as { readonly id?: string; readonly messages: readonly ChatMessage[] }
  const endsWithQuestion = messages.at(-1)?.role === 'user'
  const question: ChatMessage = {
    role: 'user',
    content: 'Which decisions were made so far, and which questions are open?',
  }
  return {
    name: `${file}: ${id ?? 'first conversation'}`,
    messages: endsWithQuestion ? messages : [...messages, question],
  }
}
