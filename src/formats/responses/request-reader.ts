import { type Json, type JsonObject, asString } from '../../core/json.ts'
import type { Message, Native, Prompt, ReceivedBody, Part, Role } from '../../core/prompt.ts'
import { readResponseSettings, readResponseTools } from '../settings.ts'
import { inputItems, readReasoning } from './items.ts'
import { readContentParts, urlSource } from '../format.ts'
import { fieldError, booleanAt, isAbsent, readModelName, objectAt, stringAt, arrayAt } from '../read-fields.ts'

export const STORED_DATA_FIELDS = ['previous_response_id', 'conversation', 'prompt'] as const

export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
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
function readInput(input: Json | undefined): readonly Message[] {
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

function nativeFromItems(items: readonly JsonObject[]): Native {
  const [only] = items
  return { dialect: 'responses', value: only !== undefined && items.length === 1 ? only : { items } }
}
