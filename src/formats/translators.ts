import { GatewayError } from '../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { Message, Part, Prompt, Settings } from '../core/prompt.ts'
import { forEachInSteps, mapSlices, serializeExactlyInSteps, serializeInSteps, type Steps } from '../core/steps.ts'
import { contentError, writeMessages } from './chat/upstream.ts'
import { type CreateContentError, contentErrorFor, setTranslators, type WrittenPrompt } from './format.ts'
import { writeBlocks } from './messages/blocks.ts'
import {
  changedSettings,
  contentBlocks,
  type MessageWithPath,
  resultId,
  writeMessageTool,
  writeTurnsInSteps,
} from './messages/upstream.ts'
import { changedChatSettings, NO_PARAMETERS, writeChatTool } from './settings.ts'
import { unsupportedField, type SourceFormat, sourceFormatOf, type UnsupportedFields } from './unsupported-fields.ts'

export { readEmbeddings } from './embeddings.ts'

/** Called before the first prompt is translated, not at startup, because most requests need no translation. */
export function enableTranslation(): void {
  setTranslators({ openai: translateToChat, anthropic: translateToMessages })
}

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

/** The messages format has no setting for a JSON answer without a schema. */
const JSON_INSTRUCTION: JsonObject = {
  type: 'text',
  text: 'Answer with exactly one JSON object: no other words before or after it, and no code fence.',
}

/** In tokens. The messages format requires a limit. */
const DEFAULT_MAX_TOKENS = 4096

function* translateToMessages(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  const ignored = yield* omittedFields(prompt, blockError, '.type')
  yield
  return { body: yield* serializeExactlyInSteps(writeMessageBody(prompt, model)), ignored }
}

function* writeMessageBody(prompt: Prompt, model: string): Steps<JsonObject> {
  const { maxTokens = DEFAULT_MAX_TOKENS, user, effort, ...settings } = prompt.settings
  const pathOf = sourceFormatOf(prompt).pathsIn(prompt)
  const unique = makeCallIdsUnique(prompt.messages)
  yield
  const messagesWithPaths = unique.map((message, index): MessageWithPath => ({ message, path: pathOf(index) }))
  yield
  const system = [
    ...messagesWithPaths.filter(isSystem).flatMap(({ message, path }) => writeBlocks(message.parts, path)),
    ...(settings.shape?.type === 'json' ? [JSON_INSTRUCTION] : []),
  ]
  const fields = changedSettings({}, settings)
  const messages = yield* writeTurnsInSteps(messagesWithPaths.filter((item) => !isSystem(item)))
  if (messages.length === 0) throw emptyPromptError()
  yield* checkToolPairs(messages)
  return {
    model,
    max_tokens: maxTokens,
    ...(system.length === 0 ? {} : { system }),
    messages,
    ...fields,
    ...(effort === undefined ? {} : { output_config: { ...asObject(fields['output_config']), effort } }),
    ...writeTools(prompt),
    ...(user === undefined ? {} : { metadata: { user_id: user } }),
    ...(prompt.stream ? { stream: true } : {}),
  }
}

export function emptyPromptError(): GatewayError {
  const message = 'messages: there is no content to answer. Send at least one user message that is not empty.'
  return new GatewayError('invalid-request', message, { param: 'messages' })
}

function isSystem({ message }: MessageWithPath): boolean {
  return message.role === 'system'
}

function writeTools(prompt: Prompt): JsonObject {
  if (prompt.tools.length > 0) return { tools: prompt.tools.map(writeMessageTool) }
  const tools = undeclaredTools(prompt)
  return tools.length === 0 ? { tool_choice: undefined } : { tools, tool_choice: { type: 'none' } }
}

const blockError = contentErrorFor('this model, which uses the messages format')

/** The messages format requires unique ids of letters, digits, `_` and `-`. Some chat clients repeat ids. */
function makeCallIdsUnique(messages: readonly Message[]): readonly Message[] {
  const newIds = new Map<string, string>()
  // The last number appended to each used id. A search from the first number takes quadratic time for repeated ids.
  const suffixes = new Map<string, number>()
  const replaceId = (part: Part): Part => {
    if (part.type === 'tool-result') return { ...part, callId: newIds.get(part.callId) ?? part.callId }
    if (part.type !== 'tool-call') return part
    const id = findUnusedId(part.id, suffixes)
    newIds.set(part.id, id)
    return { ...part, id }
  }
  return messages.map((message) =>
    message.parts.some(hasCallId) ? { ...message, parts: message.parts.map(replaceId) } : message,
  )
}

function hasCallId({ type }: Part): boolean {
  return type === 'tool-call' || type === 'tool-result'
}

function findUnusedId(id: string, suffixes: Map<string, number>): string {
  const safe = id.replace(/[^\w-]/g, '_') || 'call'
  let unused = safe
  while (suffixes.has(unused)) {
    const suffix = (suffixes.get(safe) ?? 1) + 1
    suffixes.set(safe, suffix)
    unused = `${safe}_${suffix}`
  }
  suffixes.set(unused, 1)
  return unused
}

/**
 * Returns the names of the omitted fields. Throws for a tool that is not a function, and for an unsupported field unless
 * the translation is lossy and the field is not essential.
 */
export function* omittedFields(
  prompt: Prompt,
  createError: CreateContentError,
  toolField = '',
): Steps<readonly string[]> {
  const source = sourceFormatOf(prompt)
  const body = prompt.native.value
  const names = new Set(Object.keys(body).filter((name) => source.hintFields.has(name) && !source.isUnset(body[name])))
  for (const hint of source.findNestedHints(prompt)) names.add(hint)
  yield* forEachInSteps(prompt.messages, (message) => {
    for (const hint of source.hintsInMessage(message)) names.add(hint)
  })
  const omit = (fields: UnsupportedFields): void => {
    for (const { param, description, details, isEssential } of fields) {
      if (prompt.isLossy !== true || isEssential === true) throw createError(param, description, details)
      names.add(param)
    }
  }
  omit(unsupportedFields(prompt, source))
  const pathOf = source.pathsIn(prompt)
  yield* forEachInSteps(prompt.messages, (message, index) => omit(source.unsupportedInMessage(message, pathOf(index))))
  for (const [index, { name, parameters }] of prompt.tools.entries()) {
    if (parameters === undefined) throw createError(`tools[${index}]${toolField}`, `the tool ${name}`)
  }
  return [...names]
}

function* unsupportedFields(prompt: Prompt, source: SourceFormat): UnsupportedFields {
  const { native, settings } = prompt
  const body = native.value
  for (const [name, value = null] of Object.entries(body)) {
    if (source.isUnset(value) || source.handledFields.has(name)) continue
    const isHarmless = source.harmlessFields.get(name)
    if (isHarmless === undefined ? source.hintFields.has(name) : isHarmless(value)) continue
    const referenceField = source.referenceFields.get(name)
    yield referenceField === undefined
      ? unsupportedField('', name)
      : { param: name, isEssential: true, ...referenceField }
  }
  if (settings.toolChoice === undefined && !source.isUnset(source.toolChoiceOf(body))) {
    yield { param: 'tool_choice', description: 'a choice other than auto, none, required or one function' }
  }
  if (settings.shape === undefined && !source.isUnset(source.shapeOf(body))) {
    yield { param: source.settingNames.shape, description: 'a format other than text, json_object or json_schema' }
  }
  yield* source.findNestedUnsupported(prompt)
}

/** The upstream's error would be less specific. Calls in the last turn need no result. */
function* checkToolPairs(turns: readonly JsonObject[]): Steps<void> {
  let openCallIds = NO_IDS
  yield* forEachInSteps(turns, (turn) => {
    const blocks = contentBlocks(turn['content'])
    const resultIds = idsIn(blocks, resultId)
    for (const id of resultIds)
      if (!openCallIds.has(id)) throw unpairedCallError(id, 'the preceding assistant message does not contain the call')
    for (const id of openCallIds)
      if (!resultIds.has(id)) throw unpairedCallError(id, 'the next messages do not contain the result')
    openCallIds = idsIn(blocks, callId)
  })
}

const NO_IDS: ReadonlySet<string> = new Set()

/** Most turns have none. */
function idsIn(blocks: readonly Json[], read: (block: Json) => string | undefined): ReadonlySet<string> {
  let ids: Set<string> | undefined
  for (const block of blocks) {
    const id = read(block)
    if (id !== undefined) (ids ??= new Set()).add(id)
  }
  return ids ?? NO_IDS
}

function callId(block: Json): string | undefined {
  return isJsonObject(block) && block['type'] === 'tool_use' ? asString(block['id']) : undefined
}

function unpairedCallError(id: string, problem: string): GatewayError {
  const message = `The tool call ${JSON.stringify(id.slice(0, 100))} and its result do not match: ${problem}.`
  return new GatewayError('invalid-request', `${message} Send every call with its result.`, { param: 'messages' })
}

/** The messages format rejects tool blocks if no tools are declared. The body must set `tool_choice` to `none`. */
function undeclaredTools(prompt: Prompt): readonly JsonObject[] {
  const names = new Set<string>()
  for (const { parts } of prompt.messages) for (const part of parts) if (part.type === 'tool-call') names.add(part.name)
  return [...names].map((name) => ({ name, input_schema: NO_PARAMETERS }))
}
