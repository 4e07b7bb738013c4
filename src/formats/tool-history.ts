import { asString } from '../core/json.ts'
import type { Message, Part, Prompt } from '../core/prompt.ts'
import { itemsOf } from './responses/items.ts'
import { sourceFormatOf } from './unsupported-fields.ts'

/**
 * Removes what only the vendor's tool search can use: its tools and its blocks. Client-side searches return references
 * to tools, which become text. The tools themselves are sent in full.
 */
export function removeToolSearch(prompt: Prompt, ignoredFields: string[]): Prompt {
  const pathOf = sourceFormatOf(prompt).pathsIn(prompt)
  const tools = prompt.tools.filter(({ native }, index) => {
    const isSearch = isSearchName(native.value['type'])
    if (isSearch) ignoredFields.push(`tools[${index}]`)
    return !isSearch
  })
  // Messages without parts stay, so that later errors name the received positions.
  const messages = prompt.messages.map((message, index): Message => {
    const searchless = message.parts.filter((part) => !isSearchBlock(part))
    if (searchless.length < message.parts.length) ignoredFields.push(pathOf(index))
    return { ...message, parts: searchless.map(writeReferences) }
  })
  return { ...prompt, tools, messages }
}

function isSearchName(name: unknown): boolean {
  return typeof name === 'string' && name.startsWith('tool_search_tool_')
}

function isSearchBlock(part: Part): boolean {
  if (part.type !== 'opaque') return false
  const { type, name } = part.native.value
  return type === 'tool_search_tool_result' || (type === 'server_tool_use' && isSearchName(name))
}

function writeReferences(part: Part): Part {
  if (part.type !== 'tool-result') return part
  const content = part.content.map((inner): Part => {
    if (inner.type !== 'opaque' || inner.native.value['type'] !== 'tool_reference') return inner
    return { type: 'text', text: `Tool found: ${asString(inner.native.value['tool_name']) ?? ''}` }
  })
  return { ...part, content }
}

/** Vendors reject a call without its result, and a result without its call. */
export function removeOrphans(messages: readonly Message[], received: Prompt, ignored: string[]): readonly Message[] {
  const droppedIds = new Set(received.messages.flatMap(({ parts }) => parts.flatMap(untranslatedCallId)))
  if (droppedIds.size === 0) return messages
  const parts = messages.flatMap((message) => message.parts)
  const callIds = new Set(parts.flatMap((part) => (part.type === 'tool-call' ? [part.id] : [])))
  const resultIds = new Set(parts.flatMap((part) => (part.type === 'tool-result' ? [part.callId] : [])))
  const isOrphan = (part: Part): boolean => {
    if (part.type === 'tool-call') return droppedIds.has(part.id) && !resultIds.has(part.id)
    return part.type === 'tool-result' && droppedIds.has(part.callId) && !callIds.has(part.callId)
  }
  return messages.flatMap((message) => {
    const orphans = message.parts.filter(isOrphan)
    if (orphans.length === 0) return [message]
    for (const { type } of orphans) ignored.push(ORPHAN_NAMES[type === 'tool-call' ? 'call' : 'result'])
    const kept = message.parts.filter((part) => !isOrphan(part))
    return kept.length === 0 ? [] : [{ ...message, parts: kept }]
  })
}

const ORPHAN_NAMES = { call: 'input (function_call)', result: 'input (function_call_output)' } as const

function untranslatedCallId(part: Part): readonly string[] {
  if (part.type !== 'opaque') return []
  const id = asString(part.native.value['call_id'])
  return id === undefined ? [] : [id]
}

interface Turn {
  readonly message: Message
  readonly results: Message[]
}

/**
 * Moves each result to its call. In the responses format, other items may separate them, and each result is an item. In
 * other formats, all results directly follow the message with their calls.
 */
export function pairResults(messages: readonly Message[]): readonly Message[] {
  const turns: Turn[] = []
  const turnsByCallId = new Map<string, Turn>()
  for (const message of messages) {
    const [first] = message.parts
    const calling = first?.type === 'tool-result' ? turnsByCallId.get(first.callId) : undefined
    if (calling !== undefined) {
      calling.results.push(message)
      continue
    }
    const turn: Turn = { message, results: [] }
    turns.push(turn)
    for (const part of message.parts) if (part.type === 'tool-call') turnsByCallId.set(part.id, turn)
  }
  return turns.flatMap(({ message, results }) => [message, ...joinResults(results)])
}

/** A message per result would put the images of the first result before the second result. */
function joinResults(results: readonly Message[]): readonly Message[] {
  if (results.length < 2) return results
  const parts = results.flatMap((message) => message.parts)
  return [{ role: 'tool', parts, native: { dialect: 'responses', value: { items: results.flatMap(itemsOf) } } }]
}
