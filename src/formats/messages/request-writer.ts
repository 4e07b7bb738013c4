import { type BodyChanges, NO_PARAMETERS } from '../settings.ts'
import {
  changedTools,
  isAsReceived,
  mergeChanges,
  writeNativeBody,
  type WrittenPrompt,
  contentErrorFor,
} from '../format.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type {
  Message,
  Prompt,
  Settings,
  Tool,
  Part,
  DocumentPart,
  ImagePart,
  Source,
  TextSource,
  ToolResultPart,
} from '../../core/prompt.ts'
import { forEachInSteps, mapSlices, runSteps, type Steps, serializeExactlyInSteps } from '../../core/steps.ts'
import { sourceFormatOf, emptyPromptError, omittedFields } from '../unsupported-fields.ts'
import { parseExactObject } from '../../core/exact-json.ts'
import { changedSettings } from './settings.ts'
import { isAbsent } from '../read-fields.ts'

export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  checkToolChoice(prompt.settings, model)
  if (prompt.native.dialect !== 'messages') return runSteps(translateToMessages(prompt, model))
  return writeMessagesBody(prompt, model)
}

export function* writeInSteps(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  checkToolChoice(prompt.settings, model)
  if (prompt.native.dialect === 'messages') return writeMessagesBody(prompt, model)
  return yield* translateToMessages(prompt, model)
}

function writeMessagesBody(prompt: Prompt, model: string): WrittenPrompt {
  const { value, settings } = prompt.native
  const changes = mergeChanges(
    prompt.settings === settings ? {} : changedSettings(value, prompt.settings),
    (value['stream'] === true) === prompt.stream ? {} : { stream: prompt.stream },
    changedTools(asArray(value['tools']), prompt.tools, writeMessageTool),
    changedMessages(prompt),
  )
  return writeNativeBody(prompt, model, changes)
}

/** Fable and Mythos accept forced tool calls only before version 5.1, Opus and Sonnet only before 5.5. Haiku accepts them. */
const NO_FORCED_TOOLS =
  /claude-(?:(?:fable|mythos)-5-[1-9]\d?|(?:opus|sonnet)-5-(?:[5-9]|[1-9]\d)|(?:fable|mythos|opus|sonnet)-(?:[6-9]|[1-9]\d))(?!\d)/

function checkToolChoice({ toolChoice }: Settings, model: string): void {
  if ((toolChoice?.type !== 'required' && toolChoice?.type !== 'tool') || !NO_FORCED_TOOLS.test(model)) return
  throw new GatewayError(
    'invalid-request',
    `The model ${model} does not support a tool_choice that forces a tool call. Use auto or none.`,
    { param: 'tool_choice' },
  )
}

function changedMessages(prompt: Prompt): BodyChanges {
  const body = prompt.native.value
  const [first, ...rest] = prompt.messages
  const system = isTopLevelSystem(first, body) ? first : undefined
  const conversation = system === undefined ? prompt.messages : rest
  const isSameSystem = system === undefined ? isAbsent(body['system']) : system.native !== undefined
  return {
    ...(isSameSystem ? {} : { system: system && blocksOf(system, 'system') }),
    ...(isAsReceived(conversation, asArray(body['messages']))
      ? {}
      : { messages: writeTurns(conversation.map((message, index) => ({ message, path: `messages[${index}]` }))) }),
  }
}

/** Returns true for the message that was read from `system`, and for a rewritten first system message. */
function isTopLevelSystem(first: Message | undefined, body: JsonObject): first is Message {
  if (first?.role !== 'system') return false
  return first.native === undefined || first.native.value['content'] === body['system']
}

interface MessageWithPath {
  readonly message: Message
  readonly path: string
}

interface Turn {
  readonly role: string
  readonly members: { readonly native: JsonObject | undefined; readonly blocks: readonly Json[] }[]
}

/** Joins adjacent messages of one role, except system messages. Drops empty messages without a native form. */
function writeTurns(messages: readonly MessageWithPath[]): readonly JsonObject[] {
  return runSteps(writeTurnsInSteps(messages))
}

/** As `writeTurns`. */
function* writeTurnsInSteps(messages: readonly MessageWithPath[]): Steps<readonly JsonObject[]> {
  const turns: Turn[] = []
  yield* forEachInSteps(messages, ({ message, path }) => {
    const native = message.native?.dialect === 'messages' ? message.native.value : undefined
    const member = { native, blocks: blocksOf(message, path) }
    const role = message.role === 'tool' ? 'user' : message.role
    const last = turns.at(-1)
    if (last?.role === role && role !== 'system') last.members.push(member)
    else if (native !== undefined || member.blocks.length > 0) turns.push({ role, members: [member] })
  })
  return yield* mapSlices(turns, (slice) => slice.map(writeTurn))
}

function writeTurn({ role, members }: Turn): JsonObject {
  const [first] = members
  if (members.length === 1 && first?.native !== undefined) return first.native
  const natives = members.flatMap(({ native }) => (native === undefined ? [] : [native]))
  const blocks = members.length === 1 && first !== undefined ? first.blocks : members.flatMap((member) => member.blocks)
  const content = role === 'user' ? putResultsFirst(blocks) : blocks
  return { ...natives.reduceRight((fields, native) => ({ ...fields, ...native }), {}), role, content }
}

function putResultsFirst(blocks: readonly Json[]): readonly Json[] {
  if (!blocks.some((block) => resultId(block) !== undefined)) return blocks
  const results = new Map<string, JsonObject>()
  const others: Json[] = []
  for (const block of blocks) {
    const id = resultId(block)
    if (id === undefined || !isJsonObject(block)) others.push(block)
    else results.set(id, joinResults(results.get(id), block))
  }
  return [...results.values(), ...others]
}

function resultId(block: Json): string | undefined {
  return isJsonObject(block) && block['type'] === 'tool_result' ? asString(block['tool_use_id']) : undefined
}

/** The format rejects a second result for the same call. */
function joinResults(first: JsonObject | undefined, second: JsonObject): JsonObject {
  if (first === undefined) return second
  const failed = first['is_error'] === true || second['is_error'] === true
  return {
    ...first,
    content: [...contentBlocks(first['content']), ...contentBlocks(second['content'])],
    ...(failed ? { is_error: true } : {}),
  }
}

function contentBlocks(content: Json | undefined): readonly Json[] {
  if (typeof content === 'string') return content.trim() === '' ? [] : [{ type: 'text', text: content }]
  return asArray(content)
}

function writeMessageTool(tool: Tool): JsonObject {
  if (tool.native.dialect === 'messages') return tool.native.value
  return {
    name: tool.name,
    ...(tool.description === undefined ? {} : { description: tool.description }),
    input_schema: tool.parameters === undefined ? NO_PARAMETERS : { type: 'object', ...tool.parameters },
    ...(tool.strict === true ? { strict: true } : {}),
  }
}

/** The messages format has no setting for a JSON response without a schema. */
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

/** The format requires an object, but models sometimes write other text. */
export function readToolInput(text: string): JsonObject {
  return text.trim() === '' ? {} : (parseExactObject(text) ?? { raw: text })
}

/** Returns undefined for blank text and unsigned thinking, which the format rejects. */
function writeBlock(part: Part, path: string): JsonObject | undefined {
  if (part.native?.dialect === 'messages') return part.native.value
  switch (part.type) {
    case 'text':
      return part.text.trim() === '' ? undefined : { type: 'text', text: part.text, ...cacheControlOf(part) }
    case 'image':
      return { type: 'image', source: writeSource(part.source, path), ...cacheControlOf(part) }
    case 'document':
      return writeDocument(part, path)
    case 'tool-call':
      return { type: 'tool_use', id: part.id, name: part.name, input: readToolInput(part.input) }
    case 'tool-result':
      return writeToolResult(part, path)
    case 'thinking':
      return writeThinking(part)
    case 'opaque':
      return writeOpaque(part.native.value, path)
  }
}

function writeBlocks(parts: readonly Part[], path: string): readonly JsonObject[] {
  return parts
    .map((part, index) => writeBlock(part, `${path}.content[${index}]`))
    .filter((block) => block !== undefined)
}

function blocksOf(message: Message, path: string): readonly Json[] {
  if (message.native?.dialect !== 'messages') return writeBlocks(message.parts, path)
  const content = message.native.value['content']
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content }]
  return asArray(content)
}

/** Chat clients send the same field for prompt caching. */
function cacheControlOf(part: Exclude<Part, { readonly type: 'opaque' }>): JsonObject {
  const cacheControl = part.native?.value['cache_control']
  return cacheControl === undefined || cacheControl === null ? {} : { cache_control: cacheControl }
}

function writeThinking(part: Extract<Part, { readonly type: 'thinking' }>): JsonObject | undefined {
  if (part.redacted === true) return { type: 'redacted_thinking', data: part.text }
  return part.signature === undefined ? undefined : { type: 'thinking', thinking: part.text, signature: part.signature }
}

function writeSource(source: ImagePart['source'], path: string): JsonObject {
  switch (source.type) {
    case 'base64':
      return { type: 'base64', media_type: source.mediaType, data: source.data }
    case 'url':
      return { type: 'url', url: source.url }
    case 'file':
      throw unsupportedBlockError(path, 'a file stored by another vendor', 'Send the content of the file instead.')
  }
}

function writeDocument(part: DocumentPart, path: string): JsonObject {
  const title = part.title === undefined ? {} : { title: part.title }
  return { type: 'document', source: writeDocumentSource(part.source, path), ...title, ...cacheControlOf(part) }
}

function writeDocumentSource(source: Source | TextSource, path: string): JsonObject {
  if (source.type === 'text') return { type: 'text', media_type: 'text/plain', data: source.text }
  if (source.type !== 'base64' || source.mediaType === 'application/pdf') return writeSource(source, path)
  if (!source.mediaType.startsWith('text/')) {
    throw unsupportedBlockError(path, `a file of type ${source.mediaType.slice(0, 100)}`, 'Send a PDF or plain text.')
  }
  return { type: 'text', media_type: 'text/plain', data: decodeText(source.data, path) }
}

function decodeText(base64: string, path: string): string {
  try {
    const binary = atob(base64)
    const bytes = new Uint8Array(binary.length)
    for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index)
    return new TextDecoder().decode(bytes)
  } catch {
    throw new GatewayError('invalid-request', `${path} is a file whose data is not base64. Send valid base64.`, {
      param: path,
    })
  }
}

function writeToolResult(part: ToolResultPart, path: string): JsonObject {
  const content = writeBlocks(part.content, path)
  return {
    type: 'tool_result',
    tool_use_id: part.callId,
    ...(content.length === 0 ? {} : { content }),
    ...(part.failed ? { is_error: true } : {}),
  }
}

function writeOpaque(value: JsonObject, path: string): JsonObject | undefined {
  if (value['type'] !== 'refusal' || typeof value['refusal'] !== 'string') {
    throw unsupportedBlockError(path, 'a content part of another format', 'Remove it or send it as text.')
  }
  return value['refusal'].trim() === '' ? undefined : { type: 'text', text: value['refusal'] }
}

function unsupportedBlockError(path: string, content: string, remedy: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `${path} is ${content}, which models that use the messages format do not support. ${remedy}`,
    { param: path },
  )
}
