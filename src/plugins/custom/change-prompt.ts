/** Applies the messages that a plugin returned. Loaded with the first request that a plugin changes. */
import { asObject, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import { textOfMessage, editText } from '../../core/messages.ts'
import type { Message, Native, Part, Prompt } from '../../core/prompt.ts'
import { UPSTREAM_FORMATS } from '../../formats/dialects.ts'
import type { ClientFormat } from '../../formats/format.ts'
import { parseBodyInSteps } from '../../formats/parse-body.ts'
import type { ParseLimits } from '../../formats/scan-json.ts'
import type { PromptChange } from '../../kernel/plugin.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'

export interface ChangedPrompt {
  readonly prompt: Prompt
  /** Maximum size of the serialized body, in bytes. */
  readonly bytes: number
}

interface ChangeOptions {
  readonly format: ClientFormat
  readonly limits: ParseLimits
  readonly uuid: () => string
}

/**
 * Writes the changed prompt as a request and reads it again, so that all later stages (limits, counts, cache, upstream)
 * see the same prompt. Throws if the change is invalid or would not be sent as it was returned.
 */
export async function changePrompt(
  before: Prompt,
  change: PromptChange,
  { format, limits, uuid }: ChangeOptions,
): Promise<ChangedPrompt> {
  const returned = readChange(change)
  const originals = new Originals(before.messages)
  const messages = returned.map((message) => originals.restore(message))
  checkToolPairs(before.messages, messages)
  if (!messages.some(({ role, parts }) => role !== 'system' && parts.length > 0))
    throw new Error('The prompt is empty.')
  const { dialect, settings = before.settings } = before.native
  const upstreamFormat = await UPSTREAM_FORMATS[dialect]()
  const written = upstreamFormat.writePrompt(
    { ...toWritable(before, messages), settings, stream: before.native.value['stream'] === true },
    before.model,
  ).body
  const bytes = typeof written === 'string' ? new TextEncoder().encode(written) : written
  const parsed = await parseBodyInSteps(bytes, limits, { pause: yieldToEventLoop, uuid })
  const read = format.readPrompt(parsed.body, parsed.received)
  checkText(returned, read.messages)
  const prompt = {
    ...before,
    native: read.native,
    messages: read.messages,
    settings: before.settings === before.native.settings ? read.settings : before.settings,
  }
  return { prompt, bytes: parsed.maxSerializedBytes }
}

const ROLES: ReadonlySet<unknown> = new Set(['system', 'user', 'assistant', 'tool'])
const MAX_MESSAGES = 10_000
const MAX_DEPTH = 8

/** Throws for a value that is not a change, which JavaScript code may return. */
export function readChange(change: PromptChange): readonly Message[] {
  const { messages } = change
  if (!Array.isArray(messages) || messages.length === 0 || messages.length > MAX_MESSAGES) {
    throw new Error(`messages: expected a list of 1 to ${MAX_MESSAGES} messages.`)
  }
  for (const [index, message] of (messages as readonly Message[]).entries()) {
    const path = `messages[${index}]`
    if (!isRecord(message) || !ROLES.has(message.role)) {
      throw new Error(`${path}: expected a message with the role system, user, assistant or tool.`)
    }
    checkParts(message.parts, `${path}.parts`)
  }
  return messages as readonly Message[]
}

/** Throws for an invalid part. Checks what JavaScript code may return in spite of the types. */
export function checkParts(parts: readonly Part[], path: string, depth = 0): void {
  if (!Array.isArray(parts)) throw new Error(`${path}: expected a list of parts.`)
  for (const [index, part] of (parts as readonly Part[]).entries()) {
    const partPath = `${path}[${index}]`
    if (!isRecord(part) || !isValidPart(part, partPath, depth)) throw new Error(`${partPath}: expected a valid part.`)
  }
}

function isValidPart(part: Part, path: string, depth: number): boolean {
  switch (part.type) {
    case 'text':
    case 'thinking':
      return typeof part.text === 'string'
    case 'tool-call':
      return [part.id, part.name, part.input].every((field) => typeof field === 'string')
    case 'tool-result':
      if (depth >= MAX_DEPTH) return false
      checkParts(part.content, `${path}.content`, depth + 1)
      return typeof part.callId === 'string' && typeof part.failed === 'boolean'
    case 'image':
    case 'document':
      return isRecord(part.source) && typeof part.source.type === 'string'
    case 'opaque':
      return isRecord(part.native)
    default:
      return false
  }
}

function isRecord(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Finds the received messages and parts again of which a plugin returned copies. */
class Originals {
  readonly #messages: ReadonlySet<Message>
  readonly #byNative = new Map<Native, Message>()
  readonly #parts = new Set<Part>()
  readonly #natives = new Set<Native>()

  constructor(messages: readonly Message[]) {
    this.#messages = new Set(messages)
    for (const message of messages) {
      if (message.native !== undefined) this.#byNative.set(message.native, message)
      for (const part of message.parts) this.#addPart(part)
    }
  }

  #addPart(part: Part): void {
    this.#parts.add(part)
    if (part.native !== undefined) this.#natives.add(part.native)
    if (part.type === 'tool-result') for (const nested of part.content) this.#addPart(nested)
  }

  restore(message: Message): Message {
    if (this.#messages.has(message)) return message
    const { role, parts, native } = message
    const original = native === undefined ? undefined : this.#byNative.get(native)
    if (native !== undefined && original === undefined) {
      throw new Error('native: expected the native form of a received message, or none.')
    }
    if (original !== undefined && role === original.role) {
      const edits = editsOf(original.parts, parts)
      if (edits?.size === 0) return original
      const edited = edits && replaceTexts(original, edits)
      if (edited !== undefined) {
        const restored = parts.map((part, index) => this.#restorePart(part, original.parts[index]))
        return { role, parts: restored, native: edited }
      }
    }
    return { role, parts: parts.map((part) => this.#restorePart(part)) }
  }

  /** An edited copy loses its native form, which would be sent instead of the edit. */
  #restorePart(part: Part, original?: Part): Part {
    if (this.#parts.has(part)) return part
    if (original !== undefined && JSON.stringify(original) === JSON.stringify(part)) return original
    if (part.native !== undefined && !this.#natives.has(part.native)) {
      throw new Error('native: expected the native form of a received part, or none.')
    }
    switch (part.type) {
      case 'text':
        return editText(part, part.text)
      case 'opaque':
        return part
      case 'thinking':
        throw new Error('Reasoning can be removed, but not edited or added.')
      case 'tool-result': {
        const { type, callId, failed } = part
        return { type, callId, failed, content: part.content.map((nested) => this.#restorePart(nested)) }
      }
      default: {
        const { native: _native, ...portable } = part
        return portable
      }
    }
  }
}

/** The new texts by the received ones. */
type Edits = Map<string, string>

/** Returns undefined if more than texts were changed, or if equal texts became different. */
function editsOf(before: readonly Part[], after: readonly Part[], edits: Edits = new Map()): Edits | undefined {
  if (before.length !== after.length) return undefined
  for (const [index, original] of before.entries()) {
    const part = after[index]
    if (part === original) continue
    if (part === undefined || !addEdits(original, part, edits)) return undefined
  }
  return edits
}

function addEdits(original: Part, part: Part, edits: Edits): boolean {
  switch (original.type) {
    case 'text':
      return part.type === 'text' && addEdit(edits, original.text, part.text)
    case 'tool-call':
      if (part.type !== 'tool-call' || part.id !== original.id || part.name !== original.name) return false
      return addEdit(edits, original.input, part.input)
    case 'tool-result':
      if (part.type !== 'tool-result' || part.callId !== original.callId || part.failed !== original.failed)
        return false
      return editsOf(original.content, part.content, edits) !== undefined
    default:
      return JSON.stringify(original) === JSON.stringify(part)
  }
}

function addEdit(edits: Edits, before: string, after: string): boolean {
  const known = edits.get(before)
  if (known !== undefined) return known === after
  if (before !== after) edits.set(before, after)
  return before === after || before !== ''
}

/** Fields whose strings are text. The other fields of a native form keep their values. */
const TEXT_FIELDS: ReadonlySet<string> = new Set(['content', 'text', 'input', 'arguments', 'output'])

/** Keeps all fields of the native form, such as ids and markers of the vendor's prompt cache. */
function replaceTexts({ role, native }: Message, edits: Edits): Native | undefined {
  // The writer of the messages format recognizes the received system prompt by its native form.
  if (native === undefined || (role === 'system' && native.dialect === 'messages')) return undefined
  const value = asObject(replaceIn(native.value, edits, false))
  return value && { dialect: native.dialect, value }
}

function replaceIn(value: Json, edits: Edits, isText: boolean): Json {
  if (typeof value === 'string') return (isText ? edits.get(value) : undefined) ?? value
  if (Array.isArray(value)) return (value as readonly Json[]).map((element) => replaceIn(element, edits, isText))
  if (!isJsonObject(value)) return value
  const fields: Record<string, Json | undefined> = {}
  for (const [name, field = null] of Object.entries(value)) {
    const parsed = name === 'input' && isJsonObject(field) ? edits.get(JSON.stringify(field)) : undefined
    fields[name] = parsed === undefined ? replaceIn(field, edits, TEXT_FIELDS.has(name)) : parseInput(parsed)
  }
  return fields
}

function parseInput(input: string): JsonObject {
  const value: unknown = JSON.parse(input)
  if (isJsonObject(value)) return value
  throw new Error('The input of a tool call must remain a JSON object.')
}

/** Prepares changes that the writers of a format do not expect from a received prompt. */
function toWritable(before: Prompt, messages: readonly Message[]): Prompt {
  const { dialect, value } = before.native
  const prompt = { ...before, messages }
  if (dialect === 'messages') return { ...prompt, messages: joinSystem(messages, value) }
  if (dialect !== 'responses' || typeof value['instructions'] !== 'string' || messages[0] === before.messages[0]) {
    return prompt
  }
  // The writer of the responses format omits the first system message if the body has instructions.
  const { instructions: _instructions, ...others } = value
  const [first] = messages
  const changed = first?.role === 'system' ? { ...others, instructions: textOfMessage(first) } : others
  return { ...prompt, native: { ...before.native, value: changed, received: undefined } }
}

/** The messages format has one system prompt. A new system message before it becomes part of it. */
function joinSystem(messages: readonly Message[], body: JsonObject): readonly Message[] {
  const isTop = ({ role, native }: Message): boolean =>
    role === 'system' && (native === undefined || native.value['content'] === body['system'])
  const end = messages.findIndex((message) => !isTop(message))
  const top = end === -1 ? messages : messages.slice(0, end)
  if (top.length < 2) return messages
  return [{ role: 'system', parts: top.flatMap(({ parts }) => parts) }, ...messages.slice(top.length)]
}

/** Vendors reject a call without its result, a result without its call, and messages between them. */
function checkToolPairs(before: readonly Message[], after: readonly Message[]): void {
  const known = new Set(toolProblems(before))
  const problem = toolProblems(after).find((found) => !known.has(found))
  if (problem !== undefined) throw new Error(`Tool calls must stay with their results: ${problem}.`)
}

function toolProblems(messages: readonly Message[]): readonly string[] {
  const problems: string[] = []
  const open = new Set<string>()
  const called = new Set<string>()
  for (const { parts } of messages) {
    const tools = toolsOf(parts)
    if (tools.length === 0 && open.size > 0)
      problems.push(`a message separates the call ${[...open][0]} from its result`)
    for (const { id, isResult } of tools) {
      if (!isResult) {
        called.add(id)
        open.add(id)
      } else if (called.has(id)) open.delete(id)
      else problems.push(`the call ${id} is missing`)
    }
  }
  for (const id of open) problems.push(`the result of the call ${id} is missing`)
  return problems
}

interface ToolReference {
  readonly id: string
  readonly isResult: boolean
}

function toolsOf(parts: readonly Part[]): readonly ToolReference[] {
  return parts.flatMap((part): readonly ToolReference[] => {
    if (part.type === 'tool-call') return [{ id: part.id, isResult: false }]
    return part.type === 'tool-result' ? [{ id: part.callId, isResult: true }] : []
  })
}

/** The safety net against a changed text that a writer drops: it compares the characters of both prompts. */
function checkText(returned: readonly Message[], read: readonly Message[]): void {
  const [expected, actual] = [returned, read].map((messages) => countCharacters(messages.flatMap(({ parts }) => parts)))
  const isSame =
    expected?.size === actual?.size && [...(expected ?? [])].every(([code, count]) => actual?.get(code) === count)
  if (!isSame) throw new Error('The format of the request cannot contain the returned messages.')
}

function countCharacters(parts: readonly Part[], counts = new Map<number, number>()): Map<number, number> {
  for (const part of parts) {
    if (part.type === 'tool-result') countCharacters(part.content, counts)
    const text = part.type === 'text' ? part.text : part.type === 'tool-call' ? compactJson(part.input) : ''
    for (let index = 0; index < text.length; index++) {
      const code = text.charCodeAt(index)
      if (code > 32) counts.set(code, (counts.get(code) ?? 0) + 1)
    }
  }
  return counts
}

function compactJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text))
  } catch {
    return text
  }
}
