import type { Completion, StreamPart, SseEvent, StreamChunk, StreamReader } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { keepTexts } from '../../core/exact-json.ts'
import { asArray, asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import { textOfPart, type ImagePart, type Part, type ToolCallPart } from '../../core/prompt.ts'
import { urlSource } from '../format.ts'
import { isAbsent, isUnset } from '../parse-body.ts'
import {
  appendToBlock,
  chatCallInputOf,
  chatReasoningOf,
  createChatCallIdFiller,
  fillChatCallIds,
  generateCallId,
  identityOf,
  nonEmptyString,
  nativeAnswer,
  type BlockState,
  parseUpstreamEvent,
} from '../answer-fields.ts'
import { readFinishReason, CHAT_USAGE_FIELDS, readUsage } from '../usage.ts'
import { answerFailure } from '../read-failure.ts'

/** Some vendors write the arguments as an object. */
const MESSAGE_PATH = ['choices', 'message', 'tool_calls', 'function', 'arguments']
const DELTA_PATH = ['choices', 'delta', 'tool_calls', 'function', 'arguments']

export function readCompletion(received: JsonObject, text?: string): Completion {
  const body = fillChatCallIds(received)
  const choices = asArray(body['choices']).map(asObject)
  const choice = choices[0]
  const message = asObject(choice?.['message'])
  if (message === undefined && !isAbsent(body['error'])) throw answerFailure(body)
  if (choice === undefined || message === undefined) {
    throw new GatewayError('upstream', 'The model provider sent no answer: the response body has no message.')
  }
  if (message['tool_calls'] !== undefined) keepTexts(body, text, MESSAGE_PATH)
  const calls = toolCallParts(message)
  const reasoning = chatReasoningOf(message)
  const refusal = asString(message['refusal']) ?? ''
  const parts: readonly Part[] = [
    ...(reasoning === '' ? [] : [{ type: 'thinking', text: reasoning } as const]),
    ...contentParts(message['content']),
    ...(refusal === '' ? [] : [{ type: 'text', text: refusal, isRefusal: true } as const]),
    ...(message['images'] === undefined ? [] : imageParts(message)),
    ...opaqueParts(message, CHAT_ONLY_FIELDS),
    ...opaqueParts(body, SOURCE_FIELDS),
    ...calls,
  ]
  const usage = readUsage(body['usage'], CHAT_USAGE_FIELDS)
  const unmappedText = choices.slice(1).map((other) => textOfMessage(asObject(other?.['message'])))
  const { id, model } = identityOf(body)
  const finish = readFinishReason(choice['finish_reason'], calls.length > 0, refusal !== '')
  const native = nativeAnswer('openai', body, received, text)
  const completion =
    usage === undefined ? { id, model, parts, finish, native } : { id, model, parts, finish, usage, native }
  return unmappedText.length === 0 ? completion : { ...completion, unmappedText: unmappedText.join('') }
}

function textOfMessage(message: JsonObject = {}): string {
  const calls = [message['function_call'], ...asArray(message['tool_calls'])].map((item) => {
    const call = asObject(item)
    const invocation = asObject(call?.['function']) ?? asObject(call?.['custom']) ?? call ?? {}
    return `${asString(invocation['name']) ?? ''}${chatCallInputOf(invocation)}`
  })
  const content = contentParts(message['content']).map(textOfPart)
  return [chatReasoningOf(message), ...content, asString(message['refusal']) ?? '', ...calls].join('')
}

type OpaquePart = Extract<Part, { readonly type: 'opaque' }>

const CHAT_ONLY_FIELDS = ['annotations', 'audio'] as const
/** The text refers to the elements of these fields by number. */
const SOURCE_FIELDS = ['citations', 'search_results'] as const

function opaqueParts(object: JsonObject, fields: readonly string[]): readonly OpaquePart[] {
  const parts: OpaquePart[] = []
  for (const type of fields) {
    const value = object[type]
    if (isUnset(value)) continue
    parts.push({ type: 'opaque', native: { dialect: 'openai', value: { type, [type]: value ?? null } } })
  }
  return parts
}

function imageParts(message: JsonObject): readonly ImagePart[] {
  return asArray(message['images']).flatMap((image): readonly ImagePart[] => {
    const url = asString(asObject(asObject(image)?.['image_url'])?.['url'])
    return url === undefined ? [] : [{ type: 'image', source: urlSource(url) }]
  })
}

function contentParts(content: Json | undefined): readonly Part[] {
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content }]
  return asArray(content).flatMap((item): readonly Part[] => {
    const block = asObject(item)
    if (block === undefined) return []
    if (block['type'] === 'thinking') return [{ type: 'thinking', text: thinkingText(block['thinking']) }]
    const text = asString(block['text'])
    if (text !== undefined) return [{ type: 'text', text }]
    return [{ type: 'opaque', native: { dialect: 'openai', value: block } }]
  })
}

function thinkingText(thinking: Json | undefined): string {
  if (typeof thinking === 'string') return thinking
  return asArray(thinking)
    .map((piece) => asString(asObject(piece)?.['text']) ?? '')
    .join('')
}

function toolCallParts(message: JsonObject): readonly ToolCallPart[] {
  const calls: ToolCallPart[] = []
  for (const item of asArray(message['tool_calls'])) {
    const value = asObject(item)
    const invocation = asObject(value?.['function']) ?? asObject(value?.['custom'])
    const name = nonEmptyString(invocation?.['name'])
    if (value === undefined || invocation === undefined || name === undefined) continue
    const id = asString(value['id']) ?? ''
    calls.push({
      type: 'tool-call',
      id,
      name,
      input: chatCallInputOf(invocation),
      native: { dialect: 'openai', value },
    })
  }
  const deprecatedCall = asObject(message['function_call'])
  // Some vendors add a call without a name to each message.
  const name = deprecatedCall === undefined ? undefined : nonEmptyString(deprecatedCall['name'])
  if (name === undefined) return calls
  return [...calls, { type: 'tool-call', id: name, name, input: asString(deprecatedCall?.['arguments']) ?? '' }]
}

export const DONE_DATA = '[DONE]'

interface ReaderState extends BlockState {
  hasStarted: boolean
  hasRefusal: boolean
  readonly callReader: ReturnType<typeof createCallReader>
  readonly startedChoices: Set<number>
  readonly finishedChoices: Set<number>
}

/** Many local servers omit `[DONE]`. Their streams are complete when every choice that began has a finish reason. */
export function createReader(): StreamReader {
  const state: ReaderState = {
    hasStarted: false,
    openType: undefined,
    hasRefusal: false,
    callReader: createCallReader(),
    startedChoices: new Set(),
    finishedChoices: new Set(),
  }
  const fillCallIds = createChatCallIdFiller()
  const read = (event: SseEvent): StreamChunk => {
    if (event.data.trim() === DONE_DATA) return { parts: [{ type: 'done' }], native: { dialect: 'openai', event } }
    const received = parseUpstreamEvent(event.data)
    keepTexts(received, event.data, DELTA_PATH)
    const chunk = fillCallIds(received)
    if (!isAbsent(chunk['error'])) throw answerFailure(chunk)
    // Groq's field for the reason why it stopped a stream early.
    const groqError = asObject(chunk['x_groq'])?.['error']
    if (groqError !== '' && !isUnset(groqError)) throw answerFailure({ error: groqError })
    // An event that is not a chunk is not forwarded, because clients fail on it.
    if (!Array.isArray(chunk['choices'])) return { parts: usageParts(chunk) }
    const forwarded = chunk === received ? event : { ...event, data: JSON.stringify(chunk) }
    const unmappedText = otherChoicesTextOf(chunk)
    return {
      parts: readChunk(state, chunk),
      ...(unmappedText !== '' && { unmappedText }),
      native: { dialect: 'openai', event: forwarded },
    }
  }
  const isComplete = () => state.finishedChoices.size > 0 && state.finishedChoices.size === state.startedChoices.size
  return Object.assign(read, { isComplete })
}

function usageParts(chunk: JsonObject): readonly StreamPart[] {
  const usage =
    readUsage(chunk['usage'], CHAT_USAGE_FIELDS) ?? readUsage(asObject(chunk['x_groq'])?.['usage'], CHAT_USAGE_FIELDS)
  return usage === undefined ? [] : [{ type: 'usage', usage }]
}

function readChunk(state: ReaderState, chunk: JsonObject): readonly StreamPart[] {
  const parts: StreamPart[] = []
  const choices = asArray(chunk['choices']).map(asObject)
  if (!state.hasStarted && choices.length > 0) {
    state.hasStarted = true
    parts.push({ type: 'answer-start', ...identityOf(chunk) })
  }
  if (choices.length > 0) parts.push(...opaqueParts(chunk, SOURCE_FIELDS))
  for (const choice of choices) if (choice !== undefined) parts.push(...readChoice(state, choice))
  // If a chunk contains both usage and a finish reason, the finish reason must come last.
  const end = parts.at(-1)?.type === 'answer-end' ? parts.splice(-1) : []
  return [...parts, ...usageParts(chunk), ...end]
}

function otherChoicesTextOf(chunk: JsonObject): string {
  let text = ''
  for (const item of asArray(chunk['choices'])) {
    const choice = asObject(item)
    if (choiceIndex(choice) !== 0) text += textOfMessage(asObject(choice?.['delta']))
  }
  return text
}

function choiceIndex(choice: JsonObject | undefined): number {
  const index = choice?.['index']
  return typeof index === 'number' ? index : 0
}

function readChoice(state: ReaderState, choice: JsonObject): readonly StreamPart[] {
  const index = choiceIndex(choice)
  const reason = choice['finish_reason']
  state.startedChoices.add(index)
  if (typeof reason === 'string' && reason !== '') state.finishedChoices.add(index)
  if (index !== 0) return []
  const parts = readDelta(state, asObject(choice['delta']) ?? {})
  if (typeof reason !== 'string' || reason === '') return parts
  const finish = readFinishReason(reason, state.callReader.callCount() > 0, state.hasRefusal)
  return [...parts, { type: 'answer-end', finish }]
}

function readDelta(state: ReaderState, delta: JsonObject): readonly StreamPart[] {
  const parts: StreamPart[] = []
  const reasoning = chatReasoningOf(delta)
  if (reasoning !== '') parts.push(...appendToBlock(state, 'thinking', reasoning))
  for (const part of contentParts(delta['content'])) {
    if (part.type === 'text' || part.type === 'thinking') parts.push(...appendToBlock(state, part.type, part.text))
  }
  const refusal = asString(delta['refusal']) ?? ''
  if (refusal !== '') {
    state.hasRefusal = true
    parts.push(...appendToBlock(state, 'refusal', refusal))
  }
  const images = imageParts(delta)
  if (images.length > 0) state.openType = undefined
  parts.push(...images, ...opaqueParts(delta, CHAT_ONLY_FIELDS))
  const callParts = state.callReader.read(delta)
  if (callParts.some((part) => part.type === 'tool-call-start')) state.openType = undefined
  return [...parts, ...callParts]
}

interface Call {
  id: string | undefined
  name: string | undefined
  /** The position among the started calls. Undefined until the name arrives. */
  ordinal: number | undefined
  /** Arguments received before the name. */
  pendingInput: string
}

/** Upstreams number calls from 0 or from 1, use one index for all calls, or omit it. Some repeat the id and name. */
function createCallReader() {
  const calls = new Map<string | number, Call>()
  let callCount = 0
  let lastKey: string | number = 0

  const callFor = (key: string | number, id: string | undefined, name: string | undefined): Call => {
    const known = calls.get(key)
    const isNewCall = known?.ordinal !== undefined && id !== undefined && name !== undefined && id !== known.id
    if (known !== undefined && !isNewCall) return known
    const call: Call = { id: undefined, name: undefined, ordinal: undefined, pendingInput: '' }
    calls.set(key, call)
    return call
  }

  const readPiece = (key: string | number, piece: JsonObject, invocation: JsonObject): readonly StreamPart[] => {
    lastKey = key
    const id = nonEmptyString(piece['id'])
    const name = nonEmptyString(invocation['name'])
    const call = callFor(key, id, name)
    call.id ??= id
    call.name ??= name
    const input = chatCallInputOf(invocation)
    if (call.ordinal !== undefined) return input === '' ? [] : [{ type: 'tool-call-delta', index: call.ordinal, input }]
    call.pendingInput += input
    return call.name === undefined ? [] : start(call, call.name)
  }

  const start = (call: Call, name: string): readonly StreamPart[] => {
    const index = callCount++
    call.ordinal = index
    const part = { type: 'tool-call-start', index, id: call.id ?? generateCallId('call'), name } as const
    return call.pendingInput === '' ? [part] : [part, { type: 'tool-call-delta', index, input: call.pendingInput }]
  }

  return {
    callCount: () => callCount,
    read: (delta: JsonObject): readonly StreamPart[] => {
      const parts = asArray(delta['tool_calls']).flatMap((item) => {
        const piece = asObject(item)
        const invocation = asObject(piece?.['function']) ?? asObject(piece?.['custom'])
        if (piece === undefined || invocation === undefined) return []
        const { index } = piece
        const id = nonEmptyString(piece['id'])
        const keyWithoutIndex = id === undefined ? lastKey : `id:${id}`
        return readPiece(typeof index === 'number' ? index : keyWithoutIndex, piece, invocation)
      })
      // Deprecated function calls have no index and no id.
      const deprecatedCall = asObject(delta['function_call'])
      return deprecatedCall === undefined ? parts : [...parts, ...readPiece('function_call', {}, deprecatedCall)]
    },
  }
}
