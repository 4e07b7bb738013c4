import { expectedText, unknownOptionText } from '../../core/check-options.ts'
import { GatewayError } from '../../core/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { ClientFormat } from '../../formats/format.ts'
import { chatClient } from '../../formats/chat/client.ts'
import { messagesClient } from '../../formats/messages/client.ts'
import { responsesClient } from '../../formats/responses/client.ts'

/** A request body in the chat, the messages or the responses format, with its `model`. */
export type LoggedBody = Readonly<Record<string, unknown>>

/** A request of a log. */
export interface LoggedRequest {
  readonly body: LoggedBody
  /** The time of the request: a Date, milliseconds since 1970, or an ISO 8601 string. @default `secondsBetween` after the last one */
  readonly at?: Date | number | string
  /** @default recognized by the fields of the body */
  readonly format?: 'chat' | 'messages' | 'responses'
}

/** A request that a gateway could receive. */
export interface ReadRequest {
  readonly body: JsonObject
  readonly format: ClientFormat
  /** In milliseconds since 1970. */
  readonly at: number
  /** Path of the request in the input, for errors. */
  readonly path: string
}

interface ReadOptions {
  readonly start: number
  readonly secondsBetween: number
}

const FORMATS: Readonly<Record<NonNullable<LoggedRequest['format']>, ClientFormat>> = {
  chat: chatClient,
  messages: messagesClient,
  responses: responsesClient,
}

/** Yields the requests of a log, or those that built up one conversation. Throws `invalid-request`. */
export async function* readRequests(input: unknown, options: ReadOptions): AsyncGenerator<ReadRequest> {
  const spacing = options.secondsBetween * 1000
  if (!isIterable(input)) {
    if (!isJsonObject(input)) throw inputError('input', input, 'a request body, or a list of them')
    const conversation = readEntry({ body: input }, 'input', options.start)
    let at = options.start
    for (const body of requestsWithin(conversation)) {
      yield { ...conversation, body, at }
      at += spacing
    }
    return
  }
  let last = options.start - spacing
  let index = 0
  for await (const entry of input) {
    const path = `log[${index}]`
    const request = readEntry(entry, path, last + spacing)
    if (index > 0 && request.at < last) {
      throw problemAt(`${path}.at`, 'the time is before that of the previous request. Sort the log by time')
    }
    yield request
    last = request.at
    index += 1
  }
}

function isIterable(value: unknown): value is Iterable<unknown> | AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && (Symbol.iterator in value || Symbol.asyncIterator in value)
}

const ENTRY_FIELDS = ['body', 'at', 'format']

function readEntry(entry: unknown, path: string, defaultAt: number): ReadRequest {
  if (!isJsonObject(entry)) throw inputError(path, entry, 'a request body, or an object with body')
  if (entry['body'] === undefined) return { body: copyOf(entry, path), format: formatOf(entry), at: defaultAt, path }
  const unknown = Object.keys(entry).find((name) => !ENTRY_FIELDS.includes(name))
  if (unknown !== undefined) throw problemAt(`${path}.${unknown}`, unknownOptionText(unknown, ENTRY_FIELDS, 'field'))
  const { body, at, format } = entry
  if (!isJsonObject(body)) throw inputError(`${path}.body`, body, 'a request body')
  const named = Object.entries(FORMATS).find(([name]) => name === format)?.[1]
  if (format !== undefined && named === undefined) {
    throw inputError(`${path}.format`, format, 'chat, messages or responses')
  }
  const bodyPath = `${path}.body`
  return {
    body: copyOf(body, bodyPath),
    format: named ?? formatOf(body),
    at: at === undefined ? defaultAt : timeOf(at, `${path}.at`),
    path: bodyPath,
  }
}

/** Later changes by the caller have no effect, and values that JSON does not have are not read. */
function copyOf(body: JsonObject, path: string): JsonObject {
  try {
    const copy: unknown = JSON.parse(JSON.stringify(body))
    if (isJsonObject(copy)) return copy
  } catch {}
  throw problemAt(path, 'expected a body that can be serialized as JSON')
}

function timeOf(value: unknown, path: string): number {
  const at = value instanceof Date ? value.getTime() : typeof value === 'string' ? Date.parse(value) : value
  if (typeof at === 'number' && Number.isFinite(at) && at >= 0) return at
  throw inputError(path, value, 'a Date, milliseconds since 1970 or an ISO 8601 string')
}

const MESSAGES_BLOCKS: ReadonlySet<unknown> = new Set(['tool_use', 'tool_result', 'thinking', 'redacted_thinking'])

function formatOf(body: JsonObject): ClientFormat {
  if (body['input'] !== undefined) return responsesClient
  const { system, tools, messages, stop_sequences: stopSequences, thinking } = body
  const hasMessagesTools = listOf(tools).some((tool) => isJsonObject(tool) && tool['input_schema'] !== undefined)
  const blocks = listOf(messages).flatMap((message) => (isJsonObject(message) ? listOf(message['content']) : []))
  const hasMessagesBlocks = blocks.some((block) => isJsonObject(block) && MESSAGES_BLOCKS.has(block['type']))
  const isMessages = [system, stopSequences, thinking].some((field) => field !== undefined)
  return isMessages || hasMessagesTools || hasMessagesBlocks ? messagesClient : chatClient
}

function listOf(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : []
}

/** Yields one body for each response of the conversation, and one for its end if that is not a response. */
function* requestsWithin({ body, format }: ReadRequest): Generator<JsonObject> {
  const field = format === responsesClient ? 'input' : 'messages'
  const items = body[field]
  if (!Array.isArray(items)) {
    yield body
    return
  }
  const list = items as readonly Json[]
  for (const [index, item] of list.entries()) {
    const isFirstOfResponse = index > 0 && isResponse(item) && !isResponse(list[index - 1])
    if (isFirstOfResponse) yield { ...body, [field]: list.slice(0, index) }
  }
  if (!isResponse(list.at(-1))) yield body
}

/** Items of the responses format without a role are calls and reasoning of the model, or the outputs of calls. */
function isResponse(item: Json | undefined): boolean {
  if (!isJsonObject(item)) return false
  const { role, type } = item
  if (role !== undefined) return role === 'assistant'
  return typeof type === 'string' && !type.endsWith('_output') && type !== 'message'
}

/** Adds the path of the request to the parameter that an error names. */
export async function withPath<Value>(path: string, work: Promise<Value>): Promise<Value> {
  try {
    return await work
  } catch (error) {
    if (!GatewayError.is(error)) throw error
    const { param } = error.details
    const fullPath = param === undefined ? path : `${path}.${param}`
    const message = `gateway.savings.explain: ${fullPath}: ${error.message}`
    throw new GatewayError(error.kind, message, { ...error.details, param: fullPath })
  }
}

function inputError(path: string, value: unknown, expected: string): GatewayError {
  return problemAt(path, expectedText(expected, value, path).replace(/\.$/, ''))
}

function problemAt(path: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `gateway.savings.explain: ${path}: ${problem.replace(/\.$/, '')}.`, {
    param: path,
  })
}
