import { GatewayError } from '../../core/errors.ts'
import { exactText, keepTexts } from '../../core/exact-json.ts'
import { asArray, asObject, asString, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { DocumentPart, ImagePart } from '../../core/prompt.ts'
import { readFailure as readAnyFailure, responseFailure } from '../read-failure.ts'
import {
  appendToBlock,
  generateCallId,
  nonEmptyString,
  type BlockState,
  parseUpstreamEvent,
} from '../response-fields.ts'
import {
  collect,
  type StreamPart,
  type Completion,
  type FinishReason,
  type SseEvent,
  type StreamChunk,
  type StreamReader,
} from '../../core/completion.ts'
import { nameSet } from '../parse-body.ts'
import { readFinishReason, readGeminiUsage } from '../usage.ts'

/** Google responds to an invalid API key with 400, which must not be reported as an error of the caller. */
export function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const error = asObject(body?.['error'])
  const isGatewayKeyRejected = status === 400 && /API[ _]key/i.test(asString(error?.['message']) ?? '')
  return readAnyFailure(isGatewayKeyRejected ? 401 : status, body)
}

const ARGS_PATH = ['candidates', 'content', 'parts', 'functionCall', 'args']

/** A body has the form of an event, and ends the response even without a finish reason. */
export function readCompletion(body: JsonObject, text?: string): Completion {
  keepTexts(body, text, ARGS_PATH)
  const candidate = candidateOf(body)
  if (candidate === undefined && !isPromptBlocked(body)) {
    throw new GatewayError('upstream', 'The model provider sent an empty response: the body has no candidates.')
  }
  return collect({ parts: readChunk(createState(), body, asString(candidate?.['finishReason']) ?? 'STOP') })
}

function candidateOf(body: JsonObject): JsonObject | undefined {
  return asObject(asArray(body['candidates'])[0])
}

function identityOf(body: JsonObject): Pick<Completion, 'id' | 'model'> {
  return { id: asString(body['responseId']) ?? '', model: asString(body['modelVersion']) ?? '' }
}

/** Some proxies write the default value of the enumeration, which does not block. */
function isPromptBlocked(body: JsonObject): boolean {
  const reason = asString(asObject(body['promptFeedback'])?.['blockReason'])
  return reason !== undefined && !/^BLOCK(?:ED)?_REASON_UNSPECIFIED$/.test(reason)
}

function partsOf(candidate: JsonObject | undefined): readonly JsonObject[] {
  return asArray(asObject(candidate?.['content'])?.['parts']).filter(isJsonObject)
}

function readFile({ inlineData, fileData }: JsonObject): ImagePart | DocumentPart | undefined {
  const { mimeType = null, data, fileUri } = { ...asObject(fileData), ...asObject(inlineData) }
  const mediaType = asString(mimeType) ?? 'application/octet-stream'
  const type = /^image\//i.test(mediaType) ? 'image' : 'document'
  if (typeof data === 'string') return { type, source: { type: 'base64', mediaType, data } }
  return typeof fileUri === 'string' ? { type, source: { type: 'url', url: fileUri } } : undefined
}

/** The vendor ends a response with these reasons because of a fault of the model. */
const FAULTS = nameSet('MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL MALFORMED_RESPONSE MISSING_THOUGHT_SIGNATURE')

const COMPLETE = nameSet('STOP FINISH_REASON_UNSPECIFIED')

/** With any other reason, the vendor interrupted the response. */
function finishOf(reason: string, hasCalls: boolean): FinishReason {
  if (FAULTS.has(reason)) {
    throw new GatewayError('upstream', 'The model wrote a response that cannot be parsed. Retry the request.')
  }
  const finish = readFinishReason(reason)
  if (finish !== 'stop') return finish
  if (!COMPLETE.has(reason)) return 'length'
  return hasCalls ? 'tool-call' : 'stop'
}

interface ReaderState extends BlockState {
  hasStarted: boolean
  hasFinished: boolean
  callCount: number
}

function createState(): ReaderState {
  return { hasStarted: false, hasFinished: false, openType: undefined, callCount: 0 }
}

/** The stream has no end event. It is complete after the `answer-end` part. */
export function createReader(): StreamReader {
  const state = createState()
  const read = (event: SseEvent): StreamChunk => {
    const chunk = parseUpstreamEvent(event.data)
    keepTexts(chunk, event.data, ARGS_PATH)
    if (isJsonObject(chunk['error'])) throw responseFailure(chunk)
    return { parts: readChunk(state, chunk, asString(candidateOf(chunk)?.['finishReason'])) }
  }
  return Object.assign(read, { isComplete: () => state.hasFinished })
}

/** The `answer-end` part must come last in its chunk. */
function readChunk(state: ReaderState, chunk: JsonObject, reason: string | undefined): readonly StreamPart[] {
  const parts: StreamPart[] = []
  if (!state.hasStarted) {
    state.hasStarted = true
    parts.push({ type: 'response-start', ...identityOf(chunk) })
  }
  for (const part of partsOf(candidateOf(chunk))) parts.push(...readPart(state, part))
  const usage = readGeminiUsage(chunk['usageMetadata'])
  if (usage !== undefined) parts.push({ type: 'usage', usage })
  return [...parts, ...endParts(state, chunk, reason)]
}

function endParts(state: ReaderState, chunk: JsonObject, reason: string | undefined): readonly StreamPart[] {
  const isBlocked = isPromptBlocked(chunk)
  if (state.hasFinished || (!isBlocked && reason === undefined)) return []
  state.hasFinished = true
  return [
    {
      type: 'response-end',
      finish: isBlocked || reason === undefined ? 'filtered' : finishOf(reason, state.callCount > 0),
    },
  ]
}

function readPart(state: ReaderState, part: JsonObject): readonly StreamPart[] {
  const call = asObject(part['functionCall'])
  if (call !== undefined) {
    state.openType = undefined
    const index = state.callCount++
    const id = nonEmptyString(call['id']) ?? generateCallId('call')
    return [
      { type: 'tool-call-start', index, id, name: asString(call['name']) ?? '' },
      { type: 'tool-call-delta', index, input: exactText(call['args'] ?? {}) },
    ]
  }
  const isThought = part['thought'] === true
  const file = isThought ? undefined : readFile(part)
  if (file !== undefined) {
    state.openType = undefined
    return [file]
  }
  const text = asString(part['text']) ?? ''
  return text === '' ? [] : appendToBlock(state, isThought ? 'thinking' : 'text', text)
}
