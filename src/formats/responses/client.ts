import {
  type Completion,
  type StreamPart,
  type FinishReason,
  type SseEvent,
  toStreamChunks,
} from '../../core/answer.ts'
import { NO_USAGE, type Usage } from '../../core/money.ts'
import { GatewayError } from '../../core/errors.ts'
import { type Json, type JsonObject, asArray, asObject, asString, isJsonObject } from '../../core/json.ts'
import { memberText, setMembers } from '../../core/splice-json.ts'
import { omittedNames } from '../answer-fields.ts'
import type { Message, Native, Prompt, ReceivedBody } from '../../core/prompt.ts'
import { writeChatFailure, writeResponseFailureEvent } from '../failures.ts'
import { fieldError, booleanAt, isAbsent, readModelName, objectAt, stringAt } from '../parse-body.ts'
import type {
  ClientFormat,
  StoredTurn,
  RecalledTurns,
  References,
  TurnFormat,
  WriteContext,
  WriteMetrics,
  StreamWriter,
} from '../format.ts'
import { readResponseSettings, readResponseTools } from '../settings.ts'
import { writeResponseStatus, RESPONSE_USAGE_FIELDS, writeUsage } from '../usage.ts'
import { readCompletion, LAST_EVENTS } from './answer-reader.ts'
import { readInput, inputItems, itemsOf, responseId, responseIdOfItem, idStem, echoedFields } from './items.ts'
import { inputText } from './item-texts.ts'
import { customAndNamespacedTools, omittedName, OutputWriter, type ResponseEvent } from './output-items.ts'

const STORED_DATA_FIELDS = ['previous_response_id', 'conversation', 'prompt'] as const

function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const model = readModelName(body['model'])
  const system = readInstructions(body['instructions'])
  const messages = readConversation(body)
  const settings = readResponseSettings(body)
  checkOtherFields(body)
  return {
    native: { dialect: 'responses', value: body, received, settings },
    model,
    messages: system === undefined ? messages : [system, ...messages],
    settings,
    tools: readResponseTools(body['tools']),
    stream: booleanAt(body['stream'], 'stream') ?? false,
  }
}

/** The message has its own native form, because the instructions are not part of the input. */
function readInstructions(value: Json | undefined): Message | undefined {
  if (isAbsent(value)) return undefined
  const content = stringAt(value, 'instructions')
  const native: Native = { dialect: 'responses', value: { role: 'system', content } }
  return { role: 'system', parts: [{ type: 'text', text: content }], native }
}

function readConversation(body: JsonObject): readonly Message[] {
  const refersToStoredData = STORED_DATA_FIELDS.some((field) => !isAbsent(body[field]))
  if (refersToStoredData && isAbsent(body['input'])) return []
  const messages = readInput(body['input'])
  if (messages.length === 0 && !refersToStoredData)
    throw fieldError('input', body['input'], 'a string or at least one item')
  return messages
}

function checkOtherFields(body: JsonObject): void {
  booleanAt(body['store'], 'store')
  // Rejects other values, which a vendor may treat as true.
  booleanAt(body['background'], 'background')
  if (!isAbsent(body['previous_response_id'])) {
    stringAt(body['previous_response_id'], 'previous_response_id', 'the id of a response')
  }
  if (!isAbsent(body['metadata'])) objectAt(body['metadata'], 'metadata')
}

const turns: TurnFormat = {
  referencesIn,
  resolveReferences,
  turnToStore,
  idsOf,
  readCompletion,
  answerId: (requestId) => responseId(idStem(requestId)),
  isUnfinished,
  refersToUpstream,
}

function referencesIn(body: JsonObject): References {
  const referenced = new Set<string>()
  const foreign = new Set<string>()
  for (const item of asArray(body['input'])) {
    const id = referencedId(item)
    if (id === undefined) continue
    const answerId = responseIdOfItem(id)
    if (answerId === undefined) foreign.add(id)
    else referenced.add(answerId)
  }
  return {
    previousTurnId: asString(body['previous_response_id']),
    referencedTurnIds: [...referenced],
    foreignItemIds: [...foreign],
  }
}

function refersToUpstream({ native, messages }: Prompt): boolean {
  if (STORED_DATA_FIELDS.some((field) => !isAbsent(native.value[field]))) return true
  return messages.some((message) => itemsOf(message).some((item) => referencedId(item) !== undefined))
}

function isUnfinished({ native }: Completion): boolean {
  const status = native?.value['status']
  return status === 'queued' || status === 'in_progress'
}

function idsOf(answer: JsonObject): readonly string[] {
  return [answer, ...asArray(answer['output'])].flatMap((object) => asString(asObject(object)?.['id']) ?? [])
}

/** An item with neither a type nor a role is a reference. */
function referencedId(item: Json): string | undefined {
  if (!isJsonObject(item)) return undefined
  const { type, role, id } = item
  const isReference = type === 'item_reference' || (isAbsent(type) && role === undefined)
  return isReference ? asString(id) : undefined
}

/** Returns the same object if the body refers to nothing or only to data that an upstream stores. */
function resolveReferences(body: JsonObject, turns: RecalledTurns): JsonObject {
  const { previous_response_id: previousId, ...others } = body
  const hasPrevious = typeof previousId === 'string' && !turns.upstreamIds.has(previousId)
  const hasReferences = asArray(body['input']).some((item) => {
    const id = referencedId(item)
    return id !== undefined && !turns.upstreamIds.has(id)
  })
  if (!hasPrevious && !hasReferences) return body
  const earlierItems = hasPrevious ? previousConversation(previousId, turns) : []
  const items = inputItems(body['input']).map((item, index) => resolveReference(item, `input[${index}]`, turns))
  const input = [...earlierItems, ...items]
  return hasPrevious ? { ...others, input } : { ...body, input }
}

function previousConversation(id: string, { previousTurn }: RecalledTurns): readonly Json[] {
  if (previousTurn !== undefined) return [...previousTurn.input, ...asArray(previousTurn.answer['output'])]
  throw new GatewayError(
    'invalid-request',
    `Previous response with id ${quoteId(id)} not found: responses are stored for one day, for the key that created them, unless store is false or the conversation is too long. Send the whole conversation as input.`,
    { param: 'previous_response_id', code: 'previous_response_not_found' },
  )
}

function resolveReference(item: Json, param: string, { referencedAnswers, upstreamIds }: RecalledTurns): Json {
  const id = referencedId(item)
  if (id === undefined || upstreamIds.has(id)) return item
  const answer = referencedAnswers.get(responseIdOfItem(id) ?? '')
  const answerItem = asArray(answer?.['output']).find((output) => asObject(output)?.['id'] === id)
  if (answerItem !== undefined) return answerItem
  throw new GatewayError(
    'invalid-request',
    `Item with id ${quoteId(id)} not found: items are stored for one day, for the key that created them, unless store is false or the conversation is too long. Send the item itself.`,
    { param },
  )
}

const MAX_ID_LENGTH = 100

function quoteId(id: string): string {
  return JSON.stringify(id.slice(0, MAX_ID_LENGTH))
}

function turnToStore({ prompt, requestBody }: WriteContext, serialized: string): StoredTurn | undefined {
  if ((requestBody ?? prompt.native.value)['store'] === false) return undefined
  const value: unknown = JSON.parse(serialized)
  const nested = isJsonObject(value) ? asObject(value['response']) : undefined
  const answer = nested ?? asObject(value) ?? {}
  const id = asString(answer['id'])
  if (id === undefined) return undefined
  const { value: body, received } = prompt.native
  const input = inputItems(body['input'])
  const texts = {
    answer: (nested && memberText(serialized, 'response')) ?? serialized,
    input: (received && inputText(received, body['input'])) ?? JSON.stringify(input),
  }
  return { id, input, answer, texts }
}

function createStreamWriter(context: WriteContext): StreamWriter {
  const writer = createResponseWriter(context)
  let sequence = 0
  let heldEvent: SseEvent | undefined
  const toSseEvent = (event: ResponseEvent): SseEvent => {
    const { type, ...fields } = event
    return { event: type, data: JSON.stringify({ type, sequence_number: sequence++, ...fields }) }
  }
  return {
    write: (chunk) => {
      const event = chunk.native?.dialect === 'responses' ? chunk.native.event : undefined
      if (event === undefined) return chunk.parts.flatMap((part) => writer.write(part)).map(toSseEvent)
      sequence++
      if (!LAST_EVENTS.has(event.event ?? '')) return [event]
      heldEvent = event
      return []
    },
    observeForwarded: (events) => {
      for (let end = events.find('\n\n'); end !== -1; end = events.find('\n\n', end + 2)) sequence++
    },
    end: (writeMetrics) => {
      if (heldEvent === undefined) return writer.end(writeMetrics).map(toSseEvent)
      const { data } = heldEvent
      const svc_metrics = JSON.stringify(writeMetrics('details'))
      const response = setMembers(memberText(data, 'response') ?? '{}', { svc_metrics })
      return [{ ...heldEvent, data: setMembers(data, { response }) }]
    },
    fail: (failure) => [writeResponseFailureEvent(failure, sequence)],
  }
}

function secondsAt({ now, createdSeconds }: WriteContext): number {
  return now === undefined ? createdSeconds : Math.floor(now() / 1000)
}

interface OpenedResponse {
  readonly requestFields: JsonObject
  readonly output: OutputWriter
}

function createResponseWriter(context: WriteContext) {
  let opened: OpenedResponse | undefined
  let usage: Usage | undefined
  let finish: FinishReason = 'stop'

  const open = (events: ResponseEvent[], id = '', model = context.prompt.model): OpenedResponse => {
    if (opened !== undefined) return opened
    const stem = idStem(context.requestId ?? id)
    const requestFields = echoedFields(context, responseId(stem), model)
    const response = { ...requestFields, status: 'in_progress', incomplete_details: null, output: [], usage: null }
    events.push({ type: 'response.created', response }, { type: 'response.in_progress', response })
    return (opened = { requestFields, output: new OutputWriter(stem, customAndNamespacedTools(context)) })
  }

  return {
    write: (part: StreamPart): readonly ResponseEvent[] => {
      const events: ResponseEvent[] = []
      if (part.type === 'answer-start') open(events, part.id, part.model)
      else if (part.type === 'usage') usage = { ...NO_USAGE, ...usage, ...part.usage }
      else if (part.type === 'answer-end') finish = part.finish
      else if (part.type !== 'done') {
        const { output } = open(events)
        events.push(...output.writePart(part))
      }
      return events
    },
    end: (writeMetrics: WriteMetrics): readonly ResponseEvent[] => {
      const events: ResponseEvent[] = []
      const { requestFields, output } = open(events)
      // A refusal is a complete answer in this format.
      const finalStatus = writeResponseStatus(finish === 'filtered' && output.hasRefusal ? 'stop' : finish)
      events.push(...output.finish(finalStatus.status))
      const response = {
        ...requestFields,
        ...finalStatus,
        completed_at: finalStatus.status === 'completed' ? secondsAt(context) : null,
        output: output.items,
        usage: usage === undefined ? null : writeUsage(usage, RESPONSE_USAGE_FIELDS),
        svc_metrics: { ...writeMetrics('details'), ...(output.omitted.size > 0 && { ignored: [...output.omitted] }) },
      }
      return [...events, { type: `response.${finalStatus.status}`, response }]
    },
  }
}

/** A translated answer is written as a stream, so that streamed and non-streamed answers are the same. */
function writeCompletion(completion: Completion, writeMetrics: WriteMetrics, context: WriteContext): string {
  const { native } = completion
  if (native?.dialect === 'responses') {
    const id = completion.id === '' ? {} : { id: JSON.stringify(completion.id) }
    const text = native.text ?? JSON.stringify(native.value)
    return setMembers(text, { ...id, svc_metrics: JSON.stringify(writeMetrics('details')) })
  }
  const writer = createResponseWriter(context)
  for (const chunk of toStreamChunks(completion)) for (const part of chunk.parts) writer.write(part)
  return JSON.stringify(writer.end(writeMetrics).at(-1)?.['response'])
}

export const responsesClient: ClientFormat & { readonly turns: TurnFormat } = {
  dialect: 'responses',
  readPrompt,
  writeCompletion,
  omittedContent: ({ parts }) => omittedNames(parts, omittedName),
  createStreamWriter,
  writeFailure: writeChatFailure,
  writeFailureEvent: (failure) => writeResponseFailureEvent(failure, 0),
  heartbeat: 'comment',
  turns,
}

export const compactClient: ClientFormat = {
  ...responsesClient,
  readPrompt: (body, received) => ({ ...readPrompt(body, received), stream: false, operation: 'compact' }),
}
