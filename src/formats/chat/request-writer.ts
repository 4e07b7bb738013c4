import {
  changedTools,
  documentText,
  isAsReceived,
  mergeChanges,
  type CreateContentError,
  contentErrorFor,
  urlOf,
  writeNativeBody,
  type WrittenPrompt,
} from '../format.ts'
import { asArray, asObject, type Json, type JsonObject, isJsonObject } from '../../core/json.ts'
import type { DocumentPart, Message, Native, Part, Prompt, ToolResultPart, Settings } from '../../core/prompt.ts'
import { runSteps, type Steps, mapSlices, serializeInSteps } from '../../core/steps.ts'
import { writeChatCall, requestsUsage, type BodyChanges, changedChatSettings, writeChatTool } from '../settings.ts'
import { sourceFormatOf, omittedFields } from '../unsupported-fields.ts'

/** The body of a streaming request also requests usage, for the bill. */
export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  return prompt.native.dialect === 'chat' ? writeChatBody(prompt, model) : runSteps(translateToChat(prompt, model))
}

export function* writeInSteps(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  if (prompt.native.dialect === 'chat') return writeChatBody(prompt, model)
  return yield* translateToChat(prompt, model)
}

function writeChatBody(prompt: Prompt, model: string): WrittenPrompt {
  const { value, settings } = prompt.native
  const tools = [...asArray(value['tools']), ...asArray(value['functions'])]
  const hasSameTools = isAsReceived(prompt.tools, tools)
  const changes = mergeChanges(
    prompt.settings === settings ? {} : changedChatSettings(value, prompt.settings, model),
    changedStream(value, prompt.stream),
    hasSameTools ? {} : { ...changedTools(tools, prompt.tools, writeChatTool), functions: undefined },
    changedMessages(value, prompt),
  )
  return writeNativeBody(prompt, model, changes)
}

function changedStream(value: JsonObject, stream: boolean): BodyChanges {
  const isStream = value['stream'] === true
  if (!stream) return isStream ? { stream: undefined, stream_options: undefined } : {}
  const options = { ...asObject(value['stream_options']), include_usage: true }
  const usage = requestsUsage(value) ? {} : { stream_options: options }
  return isStream ? usage : { stream: true, ...usage }
}

function changedMessages(value: JsonObject, { messages }: Prompt): BodyChanges {
  if (isAsReceived(messages, asArray(value['messages']))) return {}
  return { messages: writeMessages(messages, (index) => `messages[${index}]`) }
}

function writeMessages(messages: readonly Message[], paramOf: (index: number) => string): readonly JsonObject[] {
  return messages.flatMap((message, index) => {
    const native = nativeOf(message.native)
    return native === undefined ? writeMessage(message, paramOf(index)) : [native]
  })
}

function writeMessage(message: Message, param: string): readonly JsonObject[] {
  switch (message.role) {
    case 'system':
      return [{ role: 'system', content: writeContent(contentParts(message), param) }]
    case 'assistant':
      return writeAssistant(message, param)
    case 'user':
    case 'tool':
      return writeTurn(message, param)
  }
}

/** Omits reasoning, because it is valid only for the model that produced it. */
function writeAssistant(message: Message, param: string): readonly JsonObject[] {
  const content = contentParts(message)
  const calls = message.parts.filter((part) => part.type === 'tool-call')
  if (content.length === 0 && calls.length === 0) return []
  const text = content.length === 0 ? null : writeContent(content, param)
  if (calls.length === 0) return [{ role: 'assistant', content: text }]
  return [{ role: 'assistant', content: text, tool_calls: calls.map(writeChatCall) }]
}

function writeTurn(message: Message, param: string): readonly JsonObject[] {
  const results = message.parts.filter((part) => part.type === 'tool-result')
  const attachments = results.flatMap(attachmentsOf)
  const content = [...attachments, ...contentParts(message)]
  const toolMessages = results.map((result) => writeResult(result, param))
  if (content.length === 0 && toolMessages.length > 0) return toolMessages
  return [...toolMessages, { role: 'user', content: writeContent(content, param) }]
}

function writeResult(result: ToolResultPart, param: string): JsonObject {
  const texts = result.content.flatMap((part) => {
    if (part.type === 'text') return [part.text]
    if (part.type === 'opaque' && nativeOf(part.native) === undefined) {
      throw contentError(param, `a ${String(part.native.value['type'])} block in a tool result`)
    }
    return []
  })
  const text = texts.length === 0 && attachmentsOf(result).length > 0 ? 'See the next user message.' : texts.join('\n')
  return { role: 'tool', tool_call_id: result.callId, content: result.failed ? markFailed(text) : text }
}

/** Marks the result of a failed call in its text, because the chat format has no field for failures. */
function markFailed(text: string): string {
  if (text === '') return 'Error'
  return /^\W*error/i.test(text) ? text : `Error: ${text}`
}

function attachmentsOf(result: ToolResultPart): readonly ContentPart[] {
  const attached = result.content.filter((part) => part.type === 'image' || part.type === 'document')
  if (attached.length === 0) return []
  return [{ type: 'text', text: `Result of the tool call ${result.callId}:` }, ...attached]
}

function contentParts(message: Message): readonly ContentPart[] {
  return message.parts.filter(
    (part) => part.type === 'text' || part.type === 'image' || part.type === 'document' || part.type === 'opaque',
  )
}

type ContentPart = Extract<Part, { readonly type: 'text' | 'image' | 'document' | 'opaque' }>

/** Writes a single text part without a native form as a string, because every server supports strings. */
function writeContent(parts: readonly ContentPart[], param: string): Json {
  const [first] = parts
  if (first === undefined) return ''
  if (parts.length === 1 && first.type === 'text' && nativeOf(first.native) === undefined) return first.text
  return parts.map((part) => writeContentPart(part, param))
}

function writeContentPart(part: ContentPart, param: string): JsonObject {
  const native = nativeOf(part.native)
  if (native !== undefined) return native
  switch (part.type) {
    case 'text':
      return { type: 'text', text: part.text }
    case 'image':
      return {
        type: 'image_url',
        image_url: { url: urlOf(part.source, param, contentError) },
      }
    case 'document':
      return writeDocument(part, param)
    case 'opaque':
      throw contentError(param, `a ${String(part.native.value['type'])} block`)
  }
}

function writeDocument(part: DocumentPart, param: string): JsonObject {
  const { source, title } = part
  if (source.type === 'text') return { type: 'text', text: documentText(part) }
  if (source.type === 'url') throw contentError(param, 'a document URL')
  const data = urlOf(source, param, contentError)
  return { type: 'file', file: { filename: title ?? 'document', file_data: data } }
}

function nativeOf(native: Native | undefined): JsonObject | undefined {
  return native?.dialect === 'chat' ? native.value : undefined
}

const contentError: CreateContentError = contentErrorFor('a model that uses the chat format')

function* translateToChat(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  const omitted = yield* omittedFields(prompt, contentError)
  const pathOf = sourceFormatOf(prompt).pathsIn(prompt)
  yield
  const written = yield* mapSlices(prompt.messages, (slice, start) =>
    writeMessages(slice, (index) => pathOf(start + index)),
  )
  const joined = joinAssistantMessages(written)
  yield
  const messages = pairChatResults(joined)
  yield
  const body = {
    model,
    messages,
    ...(prompt.tools.length === 0 ? {} : { tools: prompt.tools.map(writeChatTool) }),
    ...changedChatSettings({}, settingsForChat(prompt.settings, prompt.tools.length > 0), model),
    ...(prompt.stream ? { stream: true, stream_options: { include_usage: true } } : {}),
  }
  const ignored = prompt.settings.topK === undefined ? omitted : [...omitted, 'top_k']
  return { body: yield* serializeInSteps(body), ignored }
}

/** Chat vendors require the results directly after the one message with their calls, and some reject adjacent messages. */
function joinAssistantMessages(messages: readonly JsonObject[]): readonly JsonObject[] {
  const runs: JsonObject[][] = []
  for (const message of messages) {
    const run = runs.at(-1)
    if (run !== undefined && message['role'] === 'assistant' && run[0]?.['role'] === 'assistant') run.push(message)
    else runs.push([message])
  }
  return runs.flatMap((run) => (run.length === 1 ? run : [joinRun(run)]))
}

function joinRun(run: readonly JsonObject[]): JsonObject {
  const calls = run.flatMap((message) => asArray(message['tool_calls']))
  const contents = run.flatMap(({ content = null }) => (content === null ? [] : [content]))
  return { role: 'assistant', content: joinContents(contents), ...(calls.length > 0 && { tool_calls: calls }) }
}

function joinContents(contents: readonly Json[]): Json {
  if (contents.length < 2) return contents[0] ?? null
  if (contents.every((content) => typeof content === 'string')) return contents.join('\n\n')
  return contents.flatMap((content) =>
    typeof content === 'string' ? [{ type: 'text', text: content }] : asArray(content),
  )
}

/** Moves each result to the message with its call. In the messages format, text and other messages may separate them. */
function pairChatResults(messages: readonly JsonObject[]): readonly JsonObject[] {
  const groups: JsonObject[][] = []
  const groupsByCallId = new Map<Json | undefined, JsonObject[]>()
  for (const message of messages) {
    const calling = message['role'] === 'tool' ? groupsByCallId.get(message['tool_call_id']) : undefined
    if (calling !== undefined) {
      calling.push(message)
      continue
    }
    const group = [message]
    groups.push(group)
    for (const call of asArray(message['tool_calls'])) groupsByCallId.set(asObject(call)?.['id'], group)
  }
  return groups.flat()
}

function settingsForChat(settings: Settings, hasTools: boolean): Settings {
  const { topK: _topK, toolChoice, parallelToolCalls, shape, ...others } = settings
  return {
    ...others,
    ...(hasTools && toolChoice !== undefined ? { toolChoice } : {}),
    ...(hasTools && parallelToolCalls !== undefined ? { parallelToolCalls } : {}),
    ...(shape === undefined
      ? {}
      : { shape: shape.type === 'schema' ? { strict: canBeStrict(shape.schema), ...shape } : shape }),
  }
}

/** A strict schema has no optional or additional fields. */
function canBeStrict(schema: Json): boolean {
  if (Array.isArray(schema)) return (schema as readonly Json[]).every(canBeStrict)
  if (!isJsonObject(schema)) return true
  const { properties, required } = schema
  const fieldNames = isJsonObject(properties) ? Object.keys(properties) : []
  const isClosed = schema['type'] !== 'object' || schema['additionalProperties'] === false
  const requiredNames = new Set(asArray(required))
  const requiresEveryField = fieldNames.every((name) => requiredNames.has(name))
  return isClosed && requiresEveryField && Object.values(schema).every((inner) => canBeStrict(inner ?? null))
}
