import type { Frame, AnswerEvent, Completion, ByteSearch } from '../core/answer.ts'
import type { Dialect, Native } from '../core/prompt.ts'
import { GatewayError } from '../core/errors.ts'
import { asObject, asString, isJsonObject, parseJson, type JsonObject } from '../core/json.ts'

/** Returns the id and the model of an answer. Most formats use the same field names. */
export function identityOf(answer: JsonObject | undefined): Pick<Completion, 'id' | 'model'> {
  return { id: asString(answer?.['id']) ?? '', model: asString(answer?.['model']) ?? '' }
}

/** Returns the native form of an answer. It contains the text only if the body was not changed. */
export function nativeAnswer(dialect: Dialect, body: JsonObject, received: JsonObject, text?: string): Native {
  return { dialect, value: body, ...(text === undefined || body !== received ? {} : { text }) }
}

/** Parses the data of a stream event. Throws `upstream` when it is not a JSON object. */
export function parseEvent(data: string): JsonObject {
  const value = parseJson(data)
  if (isJsonObject(value)) return value
  throw new GatewayError('upstream', 'The model provider sent a malformed event in its stream.')
}

/** Parses the data of an event that has been parsed before. */
export function parseFrame(frame: Frame): JsonObject {
  return asObject(parseJson(frame.data)) ?? {}
}

/** The block of text or thinking that the next delta of its kind continues. */
export interface OpenBlock {
  open: 'text' | 'thinking' | undefined
}

/** Returns a delta, after the start of its block unless that block is open. */
export function blockEvents(state: OpenBlock, type: 'text' | 'thinking', text: string): readonly AnswerEvent[] {
  const isOpen = state.open === type
  state.open = type
  const delta: AnswerEvent = type === 'text' ? { type: 'text-delta', text } : { type: 'thinking-delta', text }
  return isOpen ? [delta] : [{ type: `${type}-start` }, delta]
}

const LF = 10

const SPACE = 32

const CLOSE_BRACE = 125

const LOWER_N = 110

/** Returns true when every occurrence of the key has the value null. */
function isOnlyNull(search: ByteSearch, key: string): boolean {
  for (let at = search.find(key); at !== -1; at = search.find(key, at + 1)) {
    // Skips the colon and one optional space.
    let value = at + key.length + 1
    if (search.bytes[value] === SPACE) value++
    if (search.bytes[value] !== LOWER_N) return false
  }
  return true
}

/**
 * Returns true when every event is one line `data: {…}` after one of the given beginnings. Other events (comments,
 * several data lines, a cut object, another name) are left to the parser.
 */
export function isEveryEventAnObject(search: ByteSearch, beginnings: readonly Uint8Array[]): boolean {
  const { bytes } = search
  let start = 0
  while (start < bytes.length) {
    const end = search.find('\n\n', start)
    if (end === -1 || bytes[end - 1] !== CLOSE_BRACE) return false
    const object = endOfBeginning(bytes, start, beginnings)
    if (object === -1 || object > end || bytes.indexOf(LF, object) !== end) return false
    start = end + 2
  }
  return true
}

/** Returns the bytes of ASCII text. */
export function asciiBytes(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

function endOfBeginning(bytes: Uint8Array, start: number, beginnings: readonly Uint8Array[]): number {
  for (const expected of beginnings) if (startsWith(bytes, start, expected)) return start + expected.length
  return -1
}

function startsWith(bytes: Uint8Array, start: number, expected: Uint8Array): boolean {
  for (let index = 0; index < expected.length; index++) {
    if (bytes[start + index] !== expected[index]) return false
  }
  return true
}

const PLAIN_CHAT = ['data: {', 'data:{'].map(asciiBytes)

/**
 * Returns true for chunks with only content. Chunks with a usage or finish reason other than null must be parsed, and
 * also chunks with tool calls, because their ids may be missing.
 */
export function isPlainChat(search: ByteSearch): boolean {
  if (search.find('[DONE]') !== -1 || search.find('"error"') !== -1 || search.find('_call') !== -1) return false
  if (search.find('\r') !== -1) return false
  return (
    isOnlyNull(search, '"usage"') && isOnlyNull(search, '"finish_reason"') && isEveryEventAnObject(search, PLAIN_CHAT)
  )
}

/** Beginnings of plain events. Events are forwarded with their names, so the name must equal the type in the data. */
const PLAIN_MESSAGES = ['content_block_delta', 'ping'].flatMap((name) =>
  ['', ' '].map((space) => asciiBytes(`event: ${name}\ndata: {"type":${space}"${name}"`)),
)

/** Returns true for deltas and pings. Starts and ends of messages and blocks must be parsed. */
export function isPlainMessages(search: ByteSearch): boolean {
  if (search.find('message_') !== -1 || search.find('content_block_s') !== -1) return false
  if (search.find('"error"') !== -1 || search.find('\r') !== -1) return false
  return isEveryEventAnObject(search, PLAIN_MESSAGES)
}

/** Events with only a delta. Later events repeat the whole text. */
const DELTAS = [
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

const PLAIN = DELTAS.map((name) => asciiBytes(`event: ${name}\ndata: {`))

/** Returns true for events with only content, by their names. The name equals the type in the data. */
export function isPlainResponses(search: ByteSearch): boolean {
  return search.find('\r') === -1 && isEveryEventAnObject(search, PLAIN)
}
