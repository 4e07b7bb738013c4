import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'

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

const SYSTEM =
  'You are a careful reviewer of this codebase. Answer from what was read in this session only. Never guess an amount of money.'

const QUESTION =
  'Thanks. Last question before I merge: when a caller leaves in the middle of a stream, what is done so that the request is settled exactly once?'

/** A long agent session over this very project: each source file is read by a tool call, as coding agents do. */
export function ownSession(root: string): Conversation {
  const files = [...filesIn(join(root, 'docs'), '.md'), ...filesIn(join(root, 'src'), '.ts')].map((path) => ({
    path: relative(root, path),
    text: readFileSync(path, 'utf8'),
  }))
  const turns = files.flatMap(({ path, text }, index) => readingTurn(path, text, index))
  return {
    name: `a review of this project's own pages and source (${files.length} files read by tool calls)`,
    messages: [
      { role: 'system', content: SYSTEM },
      {
        role: 'user',
        content: 'Please read the whole project before I ask. Always keep money in whole numbers, never in floats.',
      },
      ...turns,
      { role: 'assistant', content: 'I have read every file. Ask away.' },
      { role: 'user', content: QUESTION },
    ],
  }
}

function readingTurn(path: string, text: string, index: number): ChatMessage[] {
  const id = `call_${index}`
  const call = { id, type: 'function', function: { name: 'read_file', arguments: JSON.stringify({ path }) } } as const
  return [
    { role: 'assistant', content: `Now ${path}.`, tool_calls: [call] },
    { role: 'tool', tool_call_id: id, content: text },
  ]
}

function filesIn(folder: string, ending: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
}

/** The beginning and the question of a conversation, of about so many characters: long enough for tier 4, too short for the others. */
export function shortened(conversation: Conversation, characters: number): Conversation {
  const { messages, name } = conversation
  const question = messages.slice(-1)
  let left = characters
  let end = 0
  for (const message of messages.slice(0, -1)) {
    left -= message.content?.length ?? 0
    if (left < 0 && message.role !== 'tool') break
    end += 1
  }
  return { name: `the beginning of ${name}`, messages: [...messages.slice(0, end), ...question] }
}

/** The first conversation of a JSON Lines file, `{ id, messages }` a line. A question is added where none is open. */
export function conversationFrom(file: string): Conversation {
  const [line] = readFileSync(file, 'utf8').split('\n', 1)
  const { id, messages } = JSON.parse(line ?? '') as { readonly id?: string; readonly messages: readonly ChatMessage[] }
  const open = messages.at(-1)?.role === 'user'
  const question: ChatMessage = { role: 'user', content: 'What was decided so far, and what is still open?' }
  return { name: `${file}: ${id ?? 'first conversation'}`, messages: open ? messages : [...messages, question] }
}
