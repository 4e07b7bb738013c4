import {
  type CreateContentError,
  contentErrorFor,
  documentText,
  type UpstreamFormat,
  type WrittenPrompt,
} from '../format.ts'
import { emptyPromptError, omittedFields } from '../translators.ts'
import { sourceFormatOf } from '../unsupported-fields.ts'
import { GatewayError } from '../../core/errors.ts'
import { exactText, keepTexts, parseExactObject } from '../../core/exact-json.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { DocumentPart, ImagePart, Part, Prompt, Settings, ToolChoice, ToolResultPart } from '../../core/prompt.ts'
import { readFailure as readAnyFailure, answerFailure } from '../read-failure.ts'
import { appendToBlock, generateCallId, nonEmptyString, type BlockState, parseUpstreamEvent } from '../answer-fields.ts'
import type { StreamPart, Completion, FinishReason, SseEvent, StreamChunk, StreamReader } from '../../core/answer.ts'
import { forEachInSteps, runSteps, serializeExactlyInSteps, type Steps } from '../../core/steps.ts'
import { nameSet } from '../parse-body.ts'
import { readFinishReason, readGeminiUsage } from '../usage.ts'

/** The model is part of the URL, not of the body. */
function* writeInSteps(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  const omitted = yield* omittedFields(prompt, contentError)
  // The vendor bills all candidates, but the gateway reads only one.
  if ((prompt.settings.choices ?? 1) > 1) throw contentError('n', 'more than one choice')
  const ignored = [...omitted]
  if (prompt.settings.parallelToolCalls !== undefined) ignored.push('parallel_tool_calls')
  if (prompt.settings.user !== undefined) ignored.push('user')
  return { body: yield* serializeExactlyInSteps(writeBody(prompt, model)), ignored }
}

function* writeBody(prompt: Prompt, model: string): Steps<JsonObject> {
  const { settings, tools } = prompt
  const generationConfig = writeSettings(settings, model)
  return {
    ...writeSystem(prompt),
    contents: yield* writeContents(prompt, model),
    ...(tools.length > 0 && {
      tools: [{ functionDeclarations: tools.map(writeFunction) }],
      ...(settings.toolChoice !== undefined && {
        toolConfig: { functionCallingConfig: writeToolChoice(settings.toolChoice) },
      }),
    }),
    ...(Object.keys(generationConfig).length > 0 && { generationConfig }),
  }
}

/** Gemini 3 and later reject a tool call of the current turn without its thought signature. */
function isGemini3OrLater(model: string): boolean {
  return /gemini-(?:[3-9]|\d\d)/.test(model)
}

function writeSystem({ messages }: Prompt): JsonObject {
  const parts = messages
    .filter(({ role }) => role === 'system')
    .flatMap((message) => message.parts.flatMap((part) => (part.type === 'text' ? [{ text: part.text }] : [])))
  return parts.length === 0 ? {} : { systemInstruction: { parts } }
}

function writeFunction({ name, description, parameters }: Prompt['tools'][number]): JsonObject {
  return {
    name,
    ...(description !== undefined && { description }),
    // A function without arguments may be declared without a schema.
    ...(parameters?.['properties'] !== undefined && { parametersJsonSchema: parameters }),
  }
}

const CALLING_MODES = { auto: 'AUTO', none: 'NONE', required: 'ANY' } as const

function writeToolChoice(choice: ToolChoice): JsonObject {
  return choice.type === 'tool'
    ? { mode: 'ANY', allowedFunctionNames: [choice.name] }
    : { mode: CALLING_MODES[choice.type] }
}

function writeSettings(settings: Settings, model: string): JsonObject {
  const { maxTokens, temperature, topP, topK, stop, shape, effort } = settings
  return {
    ...(maxTokens !== undefined && { maxOutputTokens: maxTokens }),
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
    ...(topK !== undefined && { topK }),
    ...(stop !== undefined && stop.length > 0 && { stopSequences: [...stop] }),
    ...(shape !== undefined && { responseMimeType: 'application/json' }),
    ...(shape?.type === 'schema' && { responseJsonSchema: shape.schema }),
    ...(effort !== undefined && { thinkingConfig: writeEffort(effort, model) }),
  }
}

/** Thinking budgets by effort, in tokens, as in Google's chat-completions endpoint. */
const THINKING_BUDGETS: ReadonlyMap<string, number> = new Map([
  ['none', 0],
  ['minimal', 1024],
  ['low', 1024],
  ['medium', 8192],
])
const MAX_THINKING_BUDGET = 24_576

function writeEffort(effort: string, model: string): JsonObject {
  if (isGemini3OrLater(model)) return { thinkingLevel: effort === 'none' ? 'minimal' : effort }
  return { thinkingBudget: THINKING_BUDGETS.get(effort) ?? MAX_THINKING_BUDGET }
}

/** The value that Google documents for calls without a signature, such as calls of another vendor's model. */
const UNKNOWN_SIGNATURE = 'skip_thought_signature_validator'

/** Roles must alternate, so adjacent messages of one role are joined. */
function* writeContents(prompt: Prompt, model: string): Steps<readonly JsonObject[]> {
  const pathOf = sourceFormatOf(prompt).pathsIn(prompt)
  const toolNames = new Map<string, string>()
  const contents: { readonly role: string; readonly parts: JsonObject[] }[] = []
  yield* forEachInSteps(prompt.messages, (message, index) => {
    if (message.role === 'system') return
    const role = message.role === 'assistant' ? 'model' : 'user'
    const path = pathOf(index)
    const parts = message.parts.flatMap((part) => writePart(part, { path, toolNames }))
    if (role === 'model' && isGemini3OrLater(model)) signFirstCall(parts)
    if (parts.length === 0) return
    const last = contents.at(-1)
    if (last?.role === role) last.parts.push(...parts)
    else contents.push({ role, parts })
  })
  if (contents.length === 0) throw emptyPromptError()
  return contents
}

interface ContentState {
  readonly path: string
  /** The names of earlier calls by id. A result must contain the name of its function. */
  readonly toolNames: Map<string, string>
}

function writePart(part: Part, state: ContentState): readonly JsonObject[] {
  switch (part.type) {
    case 'text':
      return part.text === '' ? [] : [{ text: part.text }]
    case 'image':
    case 'document':
      return [writeFile(part, state.path)]
    case 'tool-call':
      state.toolNames.set(part.id, part.name)
      return [{ functionCall: { id: part.id, name: part.name, args: parseExactObject(part.input) ?? {} } }]
    case 'tool-result':
      return writeResult(part, state)
    case 'thinking':
      return []
    case 'opaque':
      throw contentError(state.path, `a ${String(part.native.value['type'])} block`)
  }
}

function writeFile(part: ImagePart | DocumentPart, path: string): JsonObject {
  const { source } = part
  const text = part.type === 'document' ? documentText(part) : undefined
  if (text !== undefined) return { text }
  if (source.type === 'base64') return { inlineData: { mimeType: source.mediaType, data: source.data } }
  throw contentError(path, `${part.type === 'image' ? 'an image' : 'a document'} that is not sent as base64`)
}

function writeResult(result: ToolResultPart, state: ContentState): readonly JsonObject[] {
  const name = state.toolNames.get(result.callId)
  if (name === undefined) throw contentError(state.path, `a result without its tool call ("${result.callId}")`)
  const text = result.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
  const files = result.content.filter((part) => part.type === 'image' || part.type === 'document')
  const response = result.failed ? { error: text } : (parseExactObject(text) ?? { result: text })
  return [
    { functionResponse: { id: result.callId, name, response } },
    ...files.map((part) => writeFile(part, state.path)),
  ]
}

/** Signs only the first of several parallel calls, as Google does. */
function signFirstCall(parts: JsonObject[]): void {
  const index = parts.findIndex((part) => part['functionCall'] !== undefined)
  const call = parts[index]
  if (call !== undefined) parts[index] = { ...call, thoughtSignature: UNKNOWN_SIGNATURE }
}

const contentError: CreateContentError = contentErrorFor('a Gemini model')

export const geminiUpstream: UpstreamFormat = {
  dialect: 'gemini',
  writePrompt: (prompt, model) => runSteps(writeInSteps(prompt, model)),
  writeInSteps,
  readCompletion,
  createReader,
  readFailure,
}

/** Google responds to an invalid API key with 400, which must not be reported as an error of the caller. */
function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const error = asObject(body?.['error'])
  const isGatewayKeyRejected = status === 400 && /API[ _]key/i.test(asString(error?.['message']) ?? '')
  return readAnyFailure(isGatewayKeyRejected ? 401 : status, body)
}

const ARGS_PATH = ['candidates', 'content', 'parts', 'functionCall', 'args']

function readCompletion(body: JsonObject, text?: string): Completion {
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
function createReader(): StreamReader {
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
