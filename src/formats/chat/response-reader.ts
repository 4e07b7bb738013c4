import {
  collect,
  type Completion,
  type StreamPart,
  type SseEvent,
  type StreamChunk,
  type StreamReader,
} from '../../core/completion.ts'
import { GatewayError } from '../../core/errors.ts'
import { keepTexts } from '../../core/exact-json.ts'
import { asArray, asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import type { ServiceTiers } from '../../core/money.ts'
import { textOfPart, type ImagePart, type Part } from '../../core/prompt.ts'
import { urlSource } from '../format.ts'
import {
  appendToBlock,
  chatCallInputOf,
  chatReasoningOf,
  createChatCallIdFiller,
  fillChatCallIds,
  generateCallId,
  identityOf,
  nonEmptyString,
  nativeResponse,
  type BlockState,
  parseUpstreamEvent,
} from '../response-fields.ts'
import { readFinishReason, CHAT_USAGE_FIELDS, readTiers, readUsage } from '../usage.ts'
import { responseFailure } from '../read-failure.ts'
import { isAbsent, isUnset } from '../read-fields.ts'

/** Some vendors write the arguments as an object. */
const MESSAGE_PATH = ['choices', 'message', 'tool_calls', 'function', 'arguments']
const DELTA_PATH = ['choices', 'delta', 'tool_calls', 'function', 'arguments']

/**
 * A body has the form of one chunk: its `message` is read as a delta. Its tool calls keep their native form, because the
 * parts of a stream cannot express the calls of custom tools.
 */
export function readCompletion(received: JsonObject, text?: string): Completion {
  const body = text?.includes('"tool_calls"') === false ? received : fillChatCallIds(received)
  const choices = asArray(body['choices']).map(asObject)
  const message = asObject(choices[0]?.['message'])
  if (message === undefined && !isAbsent(body['error'])) throw responseFailure(body)
  if (message === undefined) {
    throw new GatewayError('upstream', 'The model provider sent an empty response: the body has no message.')
  }
  if (message['tool_calls'] !== undefined) keepTexts(body, text, MESSAGE_PATH)
  return collect(readChunk(createState('message'), body), nativeResponse('chat', body, received, text))
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
    parts.push({ type: 'opaque', native: { dialect: 'chat', value: { type, [type]: value ?? null } } })
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
    return [{ type: 'opaque', native: { dialect: 'chat', value: block } }]
  })
}

function thinkingText(thinking: Json | undefined): string {
  if (typeof thinking === 'string') return thinking
  return asArray(thinking)
    .map((piece) => asString(asObject(piece)?.['text']) ?? '')
    .join('')
}

export const DONE_DATA = '[DONE]'

/** Many local servers omit `[DONE]`. Their streams are complete when every choice that began has a finish reason. */
export function createReader(): StreamReader {
  const state = createState('delta')
  const fillCallIds = createChatCallIdFiller()
  const read = (event: SseEvent): StreamChunk => {
    if (event.data.trim() === DONE_DATA) return { parts: [{ type: 'done' }], native: { dialect: 'chat', event } }
    const received = parseUpstreamEvent(event.data)
    keepTexts(received, event.data, DELTA_PATH)
    const chunk = fillCallIds(received)
    if (!isAbsent(chunk['error'])) throw responseFailure(chunk)
    // Groq's field for the reason why it stopped a stream early.
    const groqError = asObject(chunk['x_groq'])?.['error']
    if (groqError !== '' && !isUnset(groqError)) throw responseFailure({ error: groqError })
    // An event that is not a chunk is not forwarded, because clients fail on it.
    if (!Array.isArray(chunk['choices'])) return { parts: withUsage(state, [], chunk) }
    const forwarded = chunk === received ? event : { ...event, data: JSON.stringify(chunk) }
    return readChunk(state, chunk, { dialect: 'chat', event: forwarded })
  }
  const isComplete = () => state.finishedChoices.size > 0 && state.finishedChoices.size === state.startedChoices.size
  return Object.assign(read, { isComplete })
}

interface ReaderState extends BlockState {
  /** The field of a choice that contains its output. */
  readonly field: 'delta' | 'message'
  readonly startedChoices: Set<number>
  readonly finishedChoices: Set<number>
  /** Absent until the first call. */
  callReader: ReturnType<typeof createCallReader> | undefined
  /** Of the first chunk, for a chunk with usage that names no tier. */
  tiers: ServiceTiers | undefined
  hasStarted: boolean
  hasRefusal: boolean
}

function createState(field: ReaderState['field']): ReaderState {
  return {
    field,
    startedChoices: new Set(),
    finishedChoices: new Set(),
    callReader: undefined,
    openType: undefined,
    tiers: undefined,
    hasStarted: false,
    hasRefusal: false,
  }
}

function readChunk(state: ReaderState, chunk: JsonObject, native?: StreamChunk['native']): StreamChunk {
  const parts: StreamPart[] = []
  let unmappedText = ''
  const choices = asArray(chunk['choices'])
  if (choices.length > 0) {
    if (!state.hasStarted) {
      parts.push({ type: 'response-start', ...identityOf(chunk) })
      if (chunk['service_tier'] !== undefined) state.tiers = readTiers(chunk)
      state.hasStarted = true
    }
    parts.push(...opaqueParts(chunk, SOURCE_FIELDS))
  }
  for (let position = 0; position < choices.length; position++) {
    const choice = asObject(choices[position])
    if (choice === undefined) continue
    // Some vendors omit the index of the choices of a body.
    const index = state.field === 'message' ? position : choiceIndex(choice)
    if (index !== 0) unmappedText += textOfMessage(asObject(choice[state.field]))
    parts.push(...readChoice(state, choice, index))
  }
  const all = withUsage(state, parts, chunk)
  const read = native === undefined ? { parts: all } : { parts: all, native }
  return unmappedText === '' ? read : { ...read, unmappedText }
}

/** If a chunk contains both usage and a finish reason, the finish reason must come last. */
function withUsage(state: ReaderState, parts: StreamPart[], chunk: JsonObject): readonly StreamPart[] {
  const usage =
    readUsage(chunk['usage'], CHAT_USAGE_FIELDS) ?? readUsage(asObject(chunk['x_groq'])?.['usage'], CHAT_USAGE_FIELDS)
  if (usage === undefined) return parts
  const position = parts.at(-1)?.type === 'response-end' ? parts.length - 1 : parts.length
  const tiers = chunk['service_tier'] === undefined ? state.tiers : (readTiers(chunk) ?? state.tiers)
  parts.splice(position, 0, { type: 'usage', usage: tiers === undefined ? usage : { ...usage, tiers } })
  return parts
}

function choiceIndex(choice: JsonObject): number {
  const index = choice['index']
  return typeof index === 'number' ? index : 0
}

function readChoice(state: ReaderState, choice: JsonObject, index: number): readonly StreamPart[] {
  const reason = choice['finish_reason']
  const isFinished = state.field === 'message' || (typeof reason === 'string' && reason !== '')
  state.startedChoices.add(index)
  if (isFinished) state.finishedChoices.add(index)
  if (index !== 0) return []
  const parts = readDelta(state, asObject(choice[state.field]) ?? {})
  if (!isFinished) return parts
  const finish = readFinishReason(reason, (state.callReader?.callCount() ?? 0) > 0, state.hasRefusal)
  return [...parts, { type: 'response-end', finish }]
}

function readDelta(state: ReaderState, delta: JsonObject): readonly StreamPart[] {
  const parts: StreamPart[] = []
  const reasoning = chatReasoningOf(delta)
  if (reasoning !== '') parts.push(...appendToBlock(state, 'thinking', reasoning))
  for (const part of contentParts(delta['content'])) {
    if (part.type === 'text' || part.type === 'thinking') parts.push(...appendToBlock(state, part.type, part.text))
    else if (part.type === 'opaque') parts.push(part)
  }
  const refusal = asString(delta['refusal']) ?? ''
  if (refusal !== '') {
    state.hasRefusal = true
    parts.push(...appendToBlock(state, 'refusal', refusal))
  }
  if (delta['images'] !== undefined) {
    const images = imageParts(delta)
    if (images.length > 0) state.openType = undefined
    parts.push(...images)
  }
  parts.push(...opaqueParts(delta, CHAT_ONLY_FIELDS))
  if (delta['tool_calls'] === undefined && delta['function_call'] === undefined) return parts
  state.callReader ??= createCallReader()
  const callParts = state.callReader.read(delta, state.field === 'message')
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

  const readPiece = (
    key: string | number,
    piece: JsonObject,
    invocation: JsonObject,
    isWhole: boolean,
  ): readonly StreamPart[] => {
    lastKey = key
    const id = nonEmptyString(piece['id'])
    const name = nonEmptyString(invocation['name'])
    const call = callFor(key, id, name)
    call.id ??= id
    call.name ??= name
    const input = chatCallInputOf(invocation)
    if (call.ordinal !== undefined) return input === '' ? [] : [{ type: 'tool-call-delta', index: call.ordinal, input }]
    call.pendingInput += input
    return call.name === undefined ? [] : start(call, call.name, isWhole ? piece : undefined)
  }

  const start = (call: Call, name: string, value: JsonObject | undefined): readonly StreamPart[] => {
    const index = callCount++
    call.ordinal = index
    const native = value && { native: { dialect: 'chat', value } as const }
    const part = { type: 'tool-call-start', index, id: call.id ?? generateCallId('call'), name, ...native } as const
    return call.pendingInput === '' ? [part] : [part, { type: 'tool-call-delta', index, input: call.pendingInput }]
  }

  return {
    callCount: () => callCount,
    read: (delta: JsonObject, isWhole: boolean): readonly StreamPart[] => {
      const parts = asArray(delta['tool_calls']).flatMap((item, position) => {
        const piece = asObject(item)
        const invocation = asObject(piece?.['function']) ?? asObject(piece?.['custom'])
        if (piece === undefined || invocation === undefined) return []
        const index = isWhole ? position : piece['index']
        const id = nonEmptyString(piece['id'])
        const keyWithoutIndex = id === undefined ? lastKey : `id:${id}`
        return readPiece(typeof index === 'number' ? index : keyWithoutIndex, piece, invocation, isWhole)
      })
      // Deprecated function calls have no index and no id.
      const deprecatedCall = asObject(delta['function_call'])
      return deprecatedCall === undefined ? parts : [...parts, ...readPiece('function_call', {}, deprecatedCall, false)]
    },
  }
}
