import type { StreamPart, Completion, SseEvent } from '../core/completion.ts'
import type { Dialect, Native, Part } from '../core/prompt.ts'
import { GatewayError } from '../core/errors.ts'
import { type ByteSearch } from '../core/byte-search.ts'
import { exactText } from '../core/exact-json.ts'
import { asObject, asString, isJsonObject, type Json, type JsonObject, parseJson } from '../core/json.ts'

export function identityOf(response: JsonObject | undefined): Pick<Completion, 'id' | 'model'> {
  return { id: asString(response?.['id']) ?? '', model: asString(response?.['model']) ?? '' }
}

export function nativeResponse(dialect: Dialect, body: JsonObject, received: JsonObject, text?: string): Native {
  return text === undefined || body !== received ? { dialect, value: body } : { dialect, value: body, text }
}

export function parseUpstreamEvent(data: string): JsonObject {
  const value = parseJson(data)
  if (isJsonObject(value)) return value
  throw new GatewayError('upstream', 'The model provider sent a malformed event in its stream.')
}

export function eventData(event: SseEvent): JsonObject {
  return asObject(parseJson(event.data)) ?? {}
}

type BlockType = 'text' | 'refusal' | 'thinking'

export interface BlockState {
  openType: BlockType | undefined
}

export function appendToBlock(state: BlockState, type: BlockType, text: string): readonly StreamPart[] {
  const isOpen = state.openType === type
  state.openType = type
  const delta: StreamPart = type === 'thinking' ? { type: 'thinking-delta', text } : { type: 'text-delta', text }
  if (isOpen) return [delta]
  return [type === 'refusal' ? { type: 'text-start', isRefusal: true } : { type: `${type}-start` }, delta]
}

const LF = 10
const SPACE = 32
const CLOSE_BRACE = 125
const LOWER_N = 110

/** Keys without their frequent first bytes, because a search stops at each occurrence of a pattern's first byte. */
const ERROR_KEY = 'rror"'
const USAGE_KEY = 'usage"'
const FINISH_REASON_KEY = '_reason"'

function isAlwaysNull(search: ByteSearch, keyEnd: string): boolean {
  for (let offset = search.find(keyEnd); offset !== -1; offset = search.find(keyEnd, offset + 1)) {
    let valueStart = offset + keyEnd.length + 1
    if (search.bytes[valueStart] === SPACE) valueStart++
    if (search.bytes[valueStart] !== LOWER_N) return false
  }
  return true
}

/** `prefixes` end inside the data line. Events with comments or several data lines must be parsed. */
function isEveryEventAnObject(search: ByteSearch, prefixes: readonly Uint8Array[]): boolean {
  const { bytes } = search
  let start = 0
  while (start < bytes.length) {
    const end = search.find('\n\n', start)
    if (end === -1 || bytes[end - 1] !== CLOSE_BRACE) return false
    const objectStart = endOfPrefix(bytes, start, prefixes)
    if (objectStart === -1 || objectStart > end || bytes.indexOf(LF, objectStart) !== end) return false
    start = end + 2
  }
  return true
}

function toBytes(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

function endOfPrefix(bytes: Uint8Array, start: number, prefixes: readonly Uint8Array[]): number {
  for (const expected of prefixes) if (startsWith(bytes, start, expected)) return start + expected.length
  return -1
}

function startsWith(bytes: Uint8Array, start: number, expected: Uint8Array): boolean {
  for (let index = 0; index < expected.length; index++) {
    if (bytes[start + index] !== expected[index]) return false
  }
  return true
}

const PLAIN_CHAT_PREFIXES = ['data: {', 'data:{'].map(toBytes)

/** Chunks with tool calls must be parsed, because ids may be missing. */
export function canForwardChat(search: ByteSearch): boolean {
  if (search.find('[DONE]') !== -1 || search.find('_call') !== -1 || search.find('\r') !== -1) return false
  if (search.find(ERROR_KEY) !== -1) return false
  return (
    isAlwaysNull(search, USAGE_KEY) &&
    isAlwaysNull(search, FINISH_REASON_KEY) &&
    isEveryEventAnObject(search, PLAIN_CHAT_PREFIXES)
  )
}

/** The event name must equal the type in the data, because the name is forwarded too. */
const PLAIN_MESSAGE_PREFIXES = ['content_block_delta', 'ping'].flatMap((name) =>
  ['', ' '].map((space) => toBytes(`event: ${name}\ndata: {"type":${space}"${name}"`)),
)

export function canForwardMessages(search: ByteSearch): boolean {
  if (search.find('message_') !== -1 || search.find('content_block_s') !== -1) return false
  if (search.find(ERROR_KEY) !== -1 || search.find('\r') !== -1) return false
  return isEveryEventAnObject(search, PLAIN_MESSAGE_PREFIXES)
}

const DELTA_EVENTS = [
  'response.output_text.delta',
  'response.reasoning_summary_text.delta',
  'response.reasoning_text.delta',
  'response.refusal.delta',
  'response.function_call_arguments.delta',
  'response.custom_tool_call_input.delta',
  'response.mcp_call_arguments.delta',
  'response.code_interpreter_call_code.delta',
  'response.output_text.annotation.added',
  'response.image_generation_call.partial_image',
]

const DELTA_PREFIXES = DELTA_EVENTS.map((name) => toBytes(`event: ${name}\ndata: {`))

export function canForwardResponses(search: ByteSearch): boolean {
  return search.find('\r') === -1 && isEveryEventAnObject(search, DELTA_PREFIXES)
}

/** Returns the kind of a file in a response, such as `audio`. Undefined for other content. */
export function fileKindOf(part: Part | StreamPart): string | undefined {
  if (part.type === 'image') return 'image'
  // Chat vendors return audio in its own field.
  if (part.type === 'opaque') return part.native.value['type'] === 'audio' ? 'audio' : undefined
  if (part.type !== 'document') return undefined
  const kind = part.source.type === 'base64' ? /^(?:audio|video)(?=\/)/i.exec(part.source.mediaType)?.[0] : undefined
  return kind?.toLowerCase() ?? 'file'
}

/** Returns the names of omitted content, each once. `nameOf` returns undefined for content that is not omitted. */
export function omittedNames(parts: readonly Part[], nameOf: (part: Part) => string | undefined): readonly string[] {
  return [...new Set(parts.map(nameOf))].filter((name) => name !== undefined)
}

/** Vendors reject a conversation in which two calls have the same id. */
export function generateCallId(prefix: 'call' | 'toolu'): string {
  return `${prefix}_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`
}

export function nonEmptyString(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Returns the same object if the value is equal, so that unchanged objects can be forwarded as received. */
function replaceField(object: JsonObject, field: string, value: Json | undefined): JsonObject {
  return object[field] === value ? object : { ...object, [field]: value }
}

function replaceItems(
  object: JsonObject,
  field: string,
  change: (item: JsonObject, index: number) => JsonObject,
): JsonObject {
  const list: Json | undefined = object[field]
  if (!Array.isArray(list)) return object
  const before: readonly Json[] = list
  const after = before.map((item, index) => (isJsonObject(item) ? change(item, index) : item))
  return after.every((item, index) => item === before[index]) ? object : { ...object, [field]: after }
}

function replaceObject(object: JsonObject, field: string, change: (inner: JsonObject) => JsonObject): JsonObject {
  const inner = object[field]
  return isJsonObject(inner) ? replaceField(object, field, change(inner)) : object
}

/** Vendors use two names for the reasoning. */
export function chatReasoningOf(message: JsonObject): string {
  return asString(message['reasoning_content']) ?? asString(message['reasoning']) ?? ''
}

/** Some servers send the arguments as an object. */
export function chatCallInputOf(invocation: JsonObject): string {
  const input = invocation['arguments'] ?? invocation['input'] ?? ''
  return typeof input === 'string' ? input : exactText(input)
}

export function fillChatCallIds(body: JsonObject): JsonObject {
  return replaceItems(body, 'choices', (choice) =>
    replaceObject(choice, 'message', (message) => replaceItems(message, 'tool_calls', ensureChatCallId)),
  )
}

function ensureChatCallId(call: JsonObject): JsonObject {
  return nonEmptyString(call['id']) === undefined ? { ...call, id: generateCallId('call') } : call
}

/** A piece of a call without an index belongs to the preceding call unless it has an id or a name. */
export function createChatCallIdFiller(): (chunk: JsonObject) => JsonObject {
  const calls = new Map<string, { hasUpstreamId: boolean }>()
  const fill = (piece: JsonObject, choice: Json | undefined): JsonObject => {
    const { index } = piece
    const id = nonEmptyString(piece['id'])
    if (typeof index !== 'number') return id === undefined && hasName(piece) ? ensureChatCallId(piece) : piece
    const key = `${String(choice)}:${index}`
    const known = calls.get(key)
    if (known === undefined) {
      if (id === undefined && !hasName(piece)) return piece
      calls.set(key, { hasUpstreamId: id !== undefined })
      return ensureChatCallId(piece)
    }
    if (id === undefined || known.hasUpstreamId) return piece
    if (!hasName(piece)) return replaceField(piece, 'id', undefined)
    // A piece with an id and a name begins a second call, which reuses the index.
    known.hasUpstreamId = true
    return piece
  }
  return (chunk) =>
    replaceItems(chunk, 'choices', (choice) =>
      replaceObject(choice, 'delta', (delta) =>
        replaceItems(delta, 'tool_calls', (piece) => fill(piece, choice['index'] ?? 0)),
      ),
    )
}

function hasName(piece: JsonObject): boolean {
  const invocation = piece['function'] ?? piece['custom']
  return isJsonObject(invocation) && nonEmptyString(invocation['name']) !== undefined
}

export function fillMessageCallIds(message: JsonObject): JsonObject {
  return replaceItems(message, 'content', ensureMessageCallId)
}

export function fillEventCallId(event: JsonObject): JsonObject {
  return event['type'] === 'content_block_start' ? replaceObject(event, 'content_block', ensureMessageCallId) : event
}

function ensureMessageCallId(block: JsonObject): JsonObject {
  return block['type'] === 'tool_use' && nonEmptyString(block['id']) === undefined
    ? { ...block, id: generateCallId('toolu') }
    : block
}

const CALL_TYPES: ReadonlySet<Json | undefined> = new Set(['function_call', 'custom_tool_call'])

export function fillResponseCallIds(response: JsonObject): JsonObject {
  return replaceItems(response, 'output', (item) => ensureResponseCallId(item))
}

function ensureResponseCallId(item: JsonObject, known?: string): JsonObject {
  if (!CALL_TYPES.has(item['type']) || nonEmptyString(item['call_id']) !== undefined) return item
  return { ...item, call_id: known ?? nonEmptyString(item['id']) ?? generateCallId('call') }
}

export function createResponseCallIdFiller(): (event: JsonObject) => JsonObject {
  const ids = new Map<Json | undefined, string>()
  const fill = (item: JsonObject, index: Json | undefined): JsonObject => {
    const filled = ensureResponseCallId(item, ids.get(index))
    const id = nonEmptyString(filled['call_id'])
    if (id !== undefined) ids.set(index, id)
    return filled
  }
  return (event) => {
    const withItem = replaceObject(event, 'item', (item) => fill(item, event['output_index']))
    return replaceObject(withItem, 'response', (response) => replaceItems(response, 'output', fill))
  }
}
