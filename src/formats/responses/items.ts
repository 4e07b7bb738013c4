import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Native, Part, Role } from '../../core/prompt.ts'
import { arrayAt, fieldError, isAbsent, objectAt, stringAt } from '../parse-body.ts'
import { readContentParts, urlSource, type WriteContext } from '../format.ts'

/** Returns no items for a message that was rewritten or received in another format. */
export function itemsOf(message: Message): readonly JsonObject[] {
  if (message.native?.dialect !== 'responses') return []
  const { value } = message.native
  const isSingleItem = value['type'] !== undefined || value['role'] !== undefined
  return isSingleItem ? [value] : asArray(value['items']).filter(isJsonObject)
}

function nativeFromItems(items: readonly JsonObject[]): Native {
  const [only] = items
  return { dialect: 'responses', value: only !== undefined && items.length === 1 ? only : { items } }
}

export function inputItems(input: Json | undefined): readonly Json[] {
  return typeof input === 'string' ? [{ role: 'user', content: input }] : asArray(input)
}

export const MAX_ITEMS = 10_000

/** A Map, because callers may send `constructor` as a role. */
const ROLES: ReadonlyMap<Json | undefined, Role> = new Map([
  ['system', 'system'],
  ['developer', 'system'],
  ['user', 'user'],
  ['assistant', 'assistant'],
])

interface InputItem {
  readonly role: Role
  readonly parts: readonly Part[]
  readonly item: JsonObject
}

/** Groups consecutive items of the assistant (reasoning, text, calls) into messages. */
export function readInput(input: Json | undefined): readonly Message[] {
  if (typeof input !== 'string' && !Array.isArray(input)) {
    throw fieldError('input', input, 'a string or an array of items')
  }
  const items = arrayAt(inputItems(input), 'input', MAX_ITEMS).map((item, index) => readItem(item, `input[${index}]`))
  return groupItems(items).map((group) => ({
    role: group.role,
    parts: group.items.flatMap((inputItem) => inputItem.parts),
    native: nativeFromItems(group.items.map((inputItem) => inputItem.item)),
  }))
}

interface ItemGroup {
  readonly role: Role
  readonly items: InputItem[]
  /** The types of all parts. A search in the items would take quadratic time. */
  readonly partTypes: Set<Part['type']>
}

function groupItems(items: readonly InputItem[]): readonly ItemGroup[] {
  const groups: ItemGroup[] = []
  for (const item of items) {
    let group = groups.at(-1)
    if (group === undefined || !belongsTo(group, item)) {
      group = { role: item.role, items: [], partTypes: new Set() }
      groups.push(group)
    }
    group.items.push(item)
    for (const { type } of item.parts) group.partTypes.add(type)
  }
  return groups
}

/**
 * Text or reasoning after text starts another group, because the vendor rejects a text without its reasoning.
 * Exception: a group that contains a call.
 */
function belongsTo(group: ItemGroup, { role, parts }: InputItem): boolean {
  if (role !== 'assistant' || group.role !== 'assistant') return false
  const mayStart = parts.some((part) => part.type === 'text' || part.type === 'thinking')
  return !mayStart || !group.partTypes.has('text') || group.partTypes.has('tool-call')
}

function readItem(value: Json, param: string): InputItem {
  const item = objectAt(value, param, 'an item: an object with a type or a role')
  const native: Native = { dialect: 'responses', value: item }
  const type = isAbsent(item['type']) ? 'message' : stringAt(item['type'], `${param}.type`)
  switch (type) {
    case 'message':
      return { role: roleOf(item, param), parts: readContent(item['content'], `${param}.content`), item }
    case 'function_call':
      return { role: 'assistant', parts: [readCall(item, native, param, 'arguments')], item }
    case 'custom_tool_call':
      return { role: 'assistant', parts: [readCall(item, native, param, 'input')], item }
    case 'function_call_output':
    case 'custom_tool_call_output':
      return { role: 'tool', parts: [readResult(item, native, param)], item }
    case 'reasoning':
      return { role: 'assistant', parts: [readReasoning(item, native)], item }
    default:
      return { role: type.endsWith('_output') ? 'tool' : 'assistant', parts: [{ type: 'opaque', native }], item }
  }
}

function roleOf(item: JsonObject, param: string): Role {
  const role = ROLES.get(item['role'])
  if (role === undefined) throw fieldError(`${param}.role`, item['role'], 'user, assistant, system or developer')
  return role
}

const INPUT_KINDS = { arguments: 'the arguments as a JSON string', input: 'the input as a string' } as const

function readCall(item: JsonObject, native: Native, param: string, field: keyof typeof INPUT_KINDS): Part {
  return {
    type: 'tool-call',
    id: stringAt(item['call_id'], `${param}.call_id`),
    name: stringAt(item['name'], `${param}.name`),
    input: stringAt(item[field], `${param}.${field}`, INPUT_KINDS[field]),
    native,
  }
}

function readResult(item: JsonObject, native: Native, param: string): Part {
  return {
    type: 'tool-result',
    callId: stringAt(item['call_id'], `${param}.call_id`),
    content: readContent(item['output'], `${param}.output`),
    failed: false,
    native,
  }
}

/** Ignores invalid fields, which upstreams may send. */
export function readReasoning(item: JsonObject, native: Native): Part {
  const { signature, redacted } = decodeReasoning(item['encrypted_content'])
  if (redacted !== undefined) return { type: 'thinking', text: redacted, redacted: true, native }
  const pieces = asArray(item['content']).length > 0 ? item['content'] : item['summary']
  const text = asArray(pieces)
    .map((piece) => asString(asObject(piece)?.['text']) ?? '')
    .join('\n')
  return { type: 'thinking', text, ...(signature === undefined ? {} : { signature }), native }
}

function readContent(content: Json | undefined, param: string): readonly Part[] {
  return readContentParts(content, param, readPart)
}

function readPart(value: Json, param: string): Part {
  const block = objectAt(value, param, 'a content part: an object with a type')
  const native: Native = { dialect: 'responses', value: block }
  switch (stringAt(block['type'], `${param}.type`)) {
    case 'input_text':
    case 'output_text':
      return { type: 'text', text: stringAt(block['text'], `${param}.text`), native }
    case 'refusal':
      return { type: 'text', text: stringAt(block['refusal'], `${param}.refusal`), native }
    case 'input_image':
      return readImage(block, native, param)
    case 'input_file':
      return readFile(block, native)
    default:
      return { type: 'opaque', native }
  }
}

function readImage(block: JsonObject, native: Native, param: string): Part {
  if (typeof block['file_id'] === 'string') {
    return { type: 'image', source: { type: 'file', id: block['file_id'] }, native }
  }
  const url = stringAt(block['image_url'], `${param}.image_url`, 'an HTTP URL or a data: URL')
  return { type: 'image', source: urlSource(url), native }
}

function readFile(block: JsonObject, native: Native): Part {
  const filename = asString(block['filename'])
  const title = filename === undefined ? {} : { title: filename }
  const { file_id: id, file_data: data, file_url: url } = block
  if (typeof id === 'string') return { type: 'document', source: { type: 'file', id }, ...title, native }
  if (typeof url === 'string') return { type: 'document', source: { type: 'url', url }, ...title, native }
  const source = typeof data === 'string' ? urlSource(data) : undefined
  return source?.type === 'base64' ? { type: 'document', source, ...title, native } : { type: 'opaque', native }
}

/** Prefixes that distinguish reasoning of other formats from the vendor's own `encrypted_content`. */
const SIGNATURE_PREFIX = 'svc-seal:'
const REDACTED_PREFIX = 'svc-cipher:'

interface OpaqueReasoning {
  readonly signature?: string
  readonly redacted?: string
}

/** Returns true for reasoning that only another vendor can read. */
export function isEncodedReasoning(item: JsonObject): boolean {
  const { signature, redacted } = decodeReasoning(item['encrypted_content'])
  return signature !== undefined || redacted !== undefined
}

export function decodeReasoning(content: unknown): OpaqueReasoning {
  if (typeof content !== 'string') return {}
  if (content.startsWith(SIGNATURE_PREFIX)) return { signature: content.slice(SIGNATURE_PREFIX.length) }
  return content.startsWith(REDACTED_PREFIX) ? { redacted: content.slice(REDACTED_PREFIX.length) } : {}
}

export function reasoningItem(id: string, text: string, { signature = '', redacted }: OpaqueReasoning): JsonObject {
  const summary = text === '' ? [] : [{ type: 'summary_text', text }]
  const encodedSignature = signature === '' ? undefined : SIGNATURE_PREFIX + signature
  const encrypted_content = redacted === undefined ? encodedSignature : REDACTED_PREFIX + redacted
  return { id, type: 'reasoning', summary, encrypted_content }
}

export function idStem(id: string): string {
  return id.replace(/^(?:req|resp|msg|chatcmpl)[_-]/, '').replace(/[^\w-]/g, '_') || '0'
}

export function responseId(stem: string): string {
  return `resp_${stem}`
}

/** Returns an id from which `responseIdOfItem` derives the id of the response. */
export function itemId(kind: 'msg' | 'fc' | 'rs' | 'ig', stem: string, index: number): string {
  return `${kind}_${stem}_${index}`
}

export function responseIdOfItem(id: string): string | undefined {
  const stem = /^(?:msg|fc|rs|ig)_([\w-]+)_\d+$/.exec(id)?.[1]
  return stem === undefined ? undefined : responseId(stem)
}

/** Required fields for which the caller set no value have the vendor's default. */
export function echoedFields(context: WriteContext, id: string, model: string): JsonObject {
  const body = context.requestBody ?? context.prompt.native.value
  const { settings } = context.prompt
  const echo = (field: string, fallback: Json): Json => body[field] ?? fallback
  return {
    id,
    object: 'response',
    created_at: context.createdSeconds,
    completed_at: null,
    background: false,
    error: null,
    frequency_penalty: 0,
    instructions: echo('instructions', null),
    max_output_tokens: echo('max_output_tokens', null),
    max_tool_calls: echo('max_tool_calls', null),
    metadata: echo('metadata', body['client_metadata'] ?? {}),
    model,
    parallel_tool_calls: echo('parallel_tool_calls', true),
    presence_penalty: 0,
    previous_response_id: echo('previous_response_id', null),
    prompt_cache_key: echo('prompt_cache_key', null),
    reasoning: { effort: null, summary: null, ...asObject(body['reasoning']) },
    safety_identifier: echo('safety_identifier', null),
    service_tier: 'default',
    store: echo('store', true),
    temperature: settings.temperature ?? 1,
    text: echoedText(asObject(body['text'])),
    tool_choice: echo('tool_choice', 'auto'),
    tools: asArray(body['tools']).map(echoedTool),
    top_logprobs: 0,
    top_p: settings.topP ?? 1,
    truncation: echo('truncation', 'disabled'),
    user: echo('user', null),
  }
}

function echoedText(text: JsonObject = {}): JsonObject {
  const { format } = text
  if (!isJsonObject(format)) return { ...text, format: { type: 'text' } }
  if (format['type'] !== 'json_schema') return text
  const { description = null, schema = null, strict } = format
  return { ...text, format: { ...format, description, schema, strict: strict ?? false } }
}

function echoedTool(tool: Json): Json {
  if (!isJsonObject(tool) || tool['type'] !== 'function') return tool
  const { description = null, parameters = null, strict } = tool
  return { ...tool, description, parameters, strict: strict ?? false }
}
