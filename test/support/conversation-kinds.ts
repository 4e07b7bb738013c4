import type { JsonObject } from '../../src/core/json.ts'

/** A conversation that grows from request to request, in the chat or the messages format. */
export interface PlayedConversation {
  readonly system: string
  readonly tools: readonly JsonObject[]
  /** Requests end after a message that is not by the assistant. */
  readonly messages: readonly JsonObject[]
}

export type WireFormat = 'chat' | 'messages'

/** Returns the bodies of the requests of a conversation, without a model. */
export function requestsOf({ system, tools, messages }: PlayedConversation, format: WireFormat): readonly JsonObject[] {
  const ends = messages.flatMap(({ role }, index) => (role === 'assistant' && index > 0 ? [index] : []))
  const common = { max_tokens: 40, ...(tools.length > 0 && { tools }) }
  return [...ends, messages.length].map((end) =>
    format === 'chat'
      ? { ...common, messages: [{ role: 'system', content: system }, ...messages.slice(0, end)] }
      : { ...common, system: [{ type: 'text', text: system }], messages: messages.slice(0, end) },
  )
}

/** Marks the end of the system prompt and of the last message, as coding agents do. Messages format only. */
export function withMarkers(body: JsonObject): JsonObject {
  const mark = (blocks: readonly JsonObject[]): readonly JsonObject[] =>
    blocks.map((block, index) =>
      index === blocks.length - 1 ? { ...block, cache_control: { type: 'ephemeral' } } : block,
    )
  const messages = body['messages'] as readonly JsonObject[]
  return {
    ...body,
    system: mark(body['system'] as readonly JsonObject[]),
    messages: messages.map((message, index) =>
      index === messages.length - 1 ? { ...message, content: mark(blocksOf(message)) } : message,
    ),
  }
}

function blocksOf({ content }: JsonObject): readonly JsonObject[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : (content as readonly JsonObject[])
}

/** Returns a chat whose turns have about 2,400 tokens. */
export function chatConversation(seed: number, turns: number): PlayedConversation {
  const messages = Array.from({ length: turns * 2 - 1 }, (_, index) =>
    index % 2 === 0
      ? { role: 'user', content: `${report(seed, index, 30)} What follows from report ${index}?` }
      : { role: 'assistant', content: `${report(seed, index, 60)} So far the pumps hold.` },
  )
  return { system: SYSTEM, tools: [], messages }
}

/** Returns a session of a coding agent: one task, then a call and its result of about 2,400 tokens per step. */
export function agentConversation(seed: number, steps: number, format: WireFormat): PlayedConversation {
  const task = { role: 'user', content: `Find the pump that fails in plant ${seed}, and repair its settings.` }
  const messages = Array.from({ length: steps }, (_, step) => {
    const id = `call_${seed}_${step}`
    const input = { path: `plants/${seed}/report-${step}.txt` }
    const result = report(seed, step + 1000, 90)
    if (format === 'chat') {
      const call = { id, type: 'function', function: { name: 'read_file', arguments: JSON.stringify(input) } }
      return [
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: id, content: result },
      ]
    }
    return [
      { role: 'assistant', content: [{ type: 'tool_use', id, name: 'read_file', input }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: result }] },
    ]
  })
  return {
    system: SYSTEM,
    tools: [format === 'chat' ? CHAT_TOOL : MESSAGES_TOOL],
    messages: [task, ...messages.flat()],
  }
}

const SCHEMA = { type: 'object', properties: { path: { type: 'string', description: 'The path of the file.' } } }
const MESSAGES_TOOL = { name: 'read_file', description: 'Reads a file of the plant.', input_schema: SCHEMA }
const CHAT_TOOL = {
  type: 'function',
  function: { name: 'read_file', description: 'Reads a file of the plant.', parameters: SCHEMA },
}

function report(seed: number, index: number, sentences: number): string {
  const lines = Array.from({ length: sentences }, (_, at) => {
    const state = (seed * 7919 + index * 104_729 + at * 1299) % 9973
    return `Entry ${index}.${at}: pump ${state % 97} of plant ${seed} ran at ${state % 89} bar near valve ${at * 3}.`
  })
  return lines.join(' ')
}

/** About 1,500 tokens, as the instructions of agents and services often have. */
const SYSTEM = Array.from(
  { length: 70 },
  (_, at) => `Rule ${at}: a pump of class ${at % 7} is reported with its plant, its valve and its pressure in bar.`,
).join(' ')
