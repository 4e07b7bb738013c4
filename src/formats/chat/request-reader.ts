import { asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Native, Part, Prompt, ReceivedBody, Role, ToolCallPart } from '../../core/prompt.ts'
import { readChatSettings, readChatTools } from '../settings.ts'
import { readContentParts, readMessageList, urlSource } from '../format.ts'
import { arrayAt, fieldError, booleanAt, isAbsent, readModelName, objectAt, stringAt } from '../read-fields.ts'

export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const model = readModelName(body['model'])
  const messages = readMessageList(body['messages'], readMessage)
  const settings = readChatSettings(body)
  const tools = readChatTools(body)
  const stream = booleanAt(body['stream'], 'stream') ?? false
  if (!isAbsent(body['stream_options'])) checkStreamOptions(body['stream_options'])
  const native: Native = { dialect: 'chat', value: body, received, settings }
  return { native, model, messages, settings, tools, stream }
}

function checkStreamOptions(value: Json | undefined): void {
  const options = objectAt(value, 'stream_options')
  booleanAt(options['include_usage'], 'stream_options.include_usage')
}

const MAX_CALLS = 1000

/** A Map, because callers may send `constructor` as a role. */
const ROLES: ReadonlyMap<string, Role> = new Map([
  ['system', 'system'],
  ['developer', 'system'],
  ['user', 'user'],
  ['assistant', 'assistant'],
  ['tool', 'tool'],
  ['function', 'tool'],
])

function readMessage(item: Json, param: string): Message {
  const value = objectAt(item, param, 'a message: an object with role and content')
  const roleName = value['role']
  const role = typeof roleName === 'string' ? ROLES.get(roleName) : undefined
  if (role === undefined) {
    throw fieldError(`${param}.role`, roleName, 'system, developer, user, assistant, tool or function')
  }
  const native: Native = { dialect: 'chat', value }
  return { role, parts: readParts(value, role, param), native }
}

function readParts(value: JsonObject, role: Role, param: string): readonly Part[] {
  switch (role) {
    case 'system':
    case 'user':
      return readContentParts(value['content'], `${param}.content`, readPart)
    case 'assistant':
      return readAssistantParts(value, param)
    case 'tool':
      return [
        {
          type: 'tool-result',
          callId: callIdOf(value, param),
          content:
            isAbsent(value['content']) && value['role'] === 'function'
              ? []
              : readContentParts(value['content'], `${param}.content`, readPart),
          failed: false,
        },
      ]
  }
}

/** Deprecated function calls have no ids, so a result is matched to its call by name. */
function callIdOf(value: JsonObject, param: string): string {
  if (value['role'] !== 'function') return stringAt(value['tool_call_id'], `${param}.tool_call_id`)
  return stringAt(value['name'], `${param}.name`)
}

const CONTENT_ALTERNATIVES = [
  'tool_calls',
  'function_call',
  'refusal',
  'audio',
  'reasoning_content',
  'reasoning',
] as const

/** Reasoning does not become a part, because other vendors require a signature. */
function readAssistantParts(value: JsonObject, param: string): readonly Part[] {
  const { content } = value
  const canOmitContent = content === null || CONTENT_ALTERNATIVES.some((field) => !isAbsent(value[field]))
  const contentParts =
    isAbsent(content) && canOmitContent ? refusalParts(value) : readContentParts(content, `${param}.content`, readPart)
  const calls = isAbsent(value['tool_calls']) ? [] : arrayAt(value['tool_calls'], `${param}.tool_calls`, MAX_CALLS)
  const toolCalls = calls.map((item, index) => readCall(item, `${param}.tool_calls[${index}]`))
  const deprecatedCall = value['function_call']
  const hasDeprecatedCall = !isAbsent(deprecatedCall) && asObject(deprecatedCall)?.['name'] !== ''
  const deprecatedCalls = hasDeprecatedCall ? [readDeprecatedCall(deprecatedCall, `${param}.function_call`)] : []
  return [...contentParts, ...toolCalls, ...deprecatedCalls]
}

function refusalParts({ refusal }: JsonObject): readonly Part[] {
  return typeof refusal === 'string' && refusal !== '' ? [{ type: 'text', text: refusal }] : []
}

function readCall(item: Json, param: string): ToolCallPart {
  const value = objectAt(item, param)
  const native: Native = { dialect: 'chat', value }
  const id = stringAt(value['id'], `${param}.id`)
  const type = value['type'] ?? 'function'
  if (type === 'function') {
    const invocation = objectAt(value['function'], `${param}.function`)
    const name = stringAt(invocation['name'], `${param}.function.name`)
    const input = stringAt(invocation['arguments'], `${param}.function.arguments`, 'the arguments as a JSON string')
    return { type: 'tool-call', id, name, input, native }
  }
  const kind = stringAt(type, `${param}.type`)
  const invocation = value[kind] ?? {}
  const name = asString(asObject(invocation)?.['name']) ?? kind
  return { type: 'tool-call', id, name, input: JSON.stringify(invocation), native }
}

/** The part has no native form, because the call is not an element of `tool_calls`. */
function readDeprecatedCall(item: Json | undefined, param: string): ToolCallPart {
  const invocation = objectAt(item, param)
  const name = stringAt(invocation['name'], `${param}.name`)
  const input = stringAt(invocation['arguments'], `${param}.arguments`, 'the arguments as a JSON string')
  return { type: 'tool-call', id: name, name, input }
}

function readPart(value: Json, param: string): Part {
  const block = objectAt(value, param, 'a content part: an object with a type')
  const native: Native = { dialect: 'chat', value: block }
  switch (stringAt(block['type'], `${param}.type`)) {
    case 'text':
      return { type: 'text', text: stringAt(block['text'], `${param}.text`), native }
    case 'refusal':
      return { type: 'text', text: stringAt(block['refusal'], `${param}.refusal`), native }
    case 'image_url': {
      const image = objectAt(block['image_url'], `${param}.image_url`, 'an object with a url')
      const url = stringAt(image['url'], `${param}.image_url.url`, 'an HTTP URL or a data: URL')
      return { type: 'image', source: urlSource(url), native }
    }
    case 'file':
      return readFile(objectAt(block['file'], `${param}.file`), native)
    default:
      return { type: 'opaque', native }
  }
}

function readFile(file: JsonObject, native: Native): Part {
  const title = typeof file['filename'] === 'string' ? { title: file['filename'] } : {}
  if (typeof file['file_id'] === 'string') {
    return { type: 'document', source: { type: 'file', id: file['file_id'] }, ...title, native }
  }
  const source = typeof file['file_data'] === 'string' ? urlSource(file['file_data']) : undefined
  if (source?.type !== 'base64') return { type: 'opaque', native }
  return { type: 'document', source, ...title, native }
}
