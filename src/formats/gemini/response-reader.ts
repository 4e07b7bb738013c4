import { GatewayError } from '../../core/errors.ts'
import { exactText, keepTexts } from '../../core/exact-json.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { DocumentPart, ImagePart, Part } from '../../core/prompt.ts'
import { readFailure as readAnyFailure, answerFailure } from '../read-failure.ts'
import { appendToBlock, generateCallId, nonEmptyString, type BlockState, parseUpstreamEvent } from '../answer-fields.ts'
import type { StreamPart, Completion, FinishReason, SseEvent, StreamChunk, StreamReader } from '../../core/answer.ts'
import { nameSet } from '../parse-body.ts'
import { readFinishReason, readGeminiUsage } from '../usage.ts'

/** Google responds to an invalid API key with 400, which must not be reported as an error of the caller. */
export function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const error = asObject(body?.['error'])
  const isGatewayKeyRejected = status === 400 && /API[ _]key/i.test(asString(error?.['message']) ?? '')
  return readAnyFailure(isGatewayKeyRejected ? 401 : status, body)
}

const ARGS_PATH = ['candidates', 'content', 'parts', 'functionCall', 'args']

export function readCompletion(body: JsonObject, text?: string): Completion {
  keepTexts(body, text, ARGS_PATH)
  const candidate = asObject(asArray(body['candidates'])[0])
  const isBlocked = isPromptBlocked(body)
  if (candidate === undefined && !isBlocked) {
    throw new GatewayError('upstream', 'The model provider sent no answer: the response body has no candidates.')
  }
  const parts = partsOf(candidate).flatMap(readPart)
  const hasCalls = parts.some(({ type }) => type === 'tool-call')
  const usage = readGeminiUsage(body['usageMetadata'])
  return {
    ...identityOf(body),
    parts,
    finish: isBlocked ? 'filtered' : finishOf(candidate?.['finishReason'], hasCalls),
    ...(usage !== undefined && { usage }),
  }
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

type AnswerPart = Extract<Part, { readonly type: 'text' | 'thinking' | 'tool-call' | 'image' | 'document' }>

function readFile({ inlineData, fileData }: JsonObject): ImagePart | DocumentPart | undefined {
  const { mimeType = null, data, fileUri } = { ...asObject(fileData), ...asObject(inlineData) }
  const mediaType = asString(mimeType) ?? 'application/octet-stream'
  const type = /^image\//i.test(mediaType) ? 'image' : 'document'
  if (typeof data === 'string') return { type, source: { type: 'base64', mediaType, data } }
  return typeof fileUri === 'string' ? { type, source: { type: 'url', url: fileUri } } : undefined
}

function readPart(part: JsonObject): readonly AnswerPart[] {
  const call = asObject(part['functionCall'])
  if (call !== undefined) {
    const id = nonEmptyString(call['id']) ?? generateCallId('call')
    return [{ type: 'tool-call', id, name: asString(call['name']) ?? '', input: exactText(call['args'] ?? {}) }]
  }
  const isThought = part['thought'] === true
  const file = isThought ? undefined : readFile(part)
  if (file !== undefined) return [file]
  const text = asString(part['text'])
  if (text === undefined || text === '') return []
  return [{ type: isThought ? 'thinking' : 'text', text }]
}

/** The vendor ends an answer with these reasons because of a fault of the model. */
const FAULTS = nameSet('MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL MALFORMED_RESPONSE MISSING_THOUGHT_SIGNATURE')

const COMPLETE = nameSet('STOP FINISH_REASON_UNSPECIFIED')

/** With any other reason, the vendor interrupted the answer. */
function finishOf(reason: Json | undefined, hasCalls: boolean): FinishReason {
  if (typeof reason === 'string' && FAULTS.has(reason)) {
    throw new GatewayError('upstream', 'The model wrote an answer that cannot be parsed. Retry the request.')
  }
  const finish = readFinishReason(reason)
  if (finish !== 'stop') return finish
  if (typeof reason === 'string' && !COMPLETE.has(reason)) return 'length'
  return hasCalls ? 'tool-call' : 'stop'
}

interface ReaderState extends BlockState {
  hasStarted: boolean
  hasFinished: boolean
  callCount: number
}

/** The stream has no end event. It is complete after the `answer-end` part. */
export function createReader(): StreamReader {
  const state: ReaderState = { hasStarted: false, hasFinished: false, openType: undefined, callCount: 0 }
  const read = (event: SseEvent): StreamChunk => {
    const chunk = parseUpstreamEvent(event.data)
    keepTexts(chunk, event.data, ARGS_PATH)
    if (isJsonObject(chunk['error'])) throw answerFailure(chunk)
    return { parts: readChunk(state, chunk) }
  }
  return Object.assign(read, { isComplete: () => state.hasFinished })
}

/** The `answer-end` part must come last in its chunk. */
function readChunk(state: ReaderState, chunk: JsonObject): readonly StreamPart[] {
  const parts: StreamPart[] = []
  if (!state.hasStarted) {
    state.hasStarted = true
    parts.push({ type: 'answer-start', ...identityOf(chunk) })
  }
  const candidate = asObject(asArray(chunk['candidates'])[0])
  for (const part of partsOf(candidate).flatMap(readPart)) parts.push(...streamParts(state, part))
  const usage = readGeminiUsage(chunk['usageMetadata'])
  if (usage !== undefined) parts.push({ type: 'usage', usage })
  return [...parts, ...endParts(state, chunk, candidate?.['finishReason'])]
}

function endParts(state: ReaderState, chunk: JsonObject, reason: Json | undefined): readonly StreamPart[] {
  const isBlocked = isPromptBlocked(chunk)
  if (state.hasFinished || (!isBlocked && typeof reason !== 'string')) return []
  state.hasFinished = true
  return [{ type: 'answer-end', finish: isBlocked ? 'filtered' : finishOf(reason, state.callCount > 0) }]
}

function streamParts(state: ReaderState, part: AnswerPart): readonly StreamPart[] {
  if (part.type === 'text' || part.type === 'thinking') return appendToBlock(state, part.type, part.text)
  state.openType = undefined
  if (part.type === 'image' || part.type === 'document') return [part]
  const index = state.callCount++
  return [
    { type: 'tool-call-start', index, id: part.id, name: part.name },
    { type: 'tool-call-delta', index, input: part.input },
  ]
}
