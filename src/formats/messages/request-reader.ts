import { exactText } from '../../core/exact-json.ts'
import { asString, type Json, type JsonObject } from '../../core/json.ts'
import type { DocumentPart, Message, Native, Part, Source, Prompt, ReceivedBody, Tool } from '../../core/prompt.ts'
import { readContentParts, readMessageList } from '../format.ts'
import { readSettings, requireMaxTokens } from './settings.ts'
import { fieldError, isAbsent, objectAt, stringAt, booleanAt, readModelName, arrayAt } from '../read-fields.ts'

function readMessage(value: Json, path: string): Message {
  const message = objectAt(value, path)
  return {
    role: readRole(message['role'], `${path}.role`),
    parts: readContent(message['content'], `${path}.content`),
    native: { dialect: 'messages', value: message },
  }
}

function readRole(value: Json | undefined, path: string): 'user' | 'assistant' | 'system' {
  if (value === 'user' || value === 'assistant' || value === 'system') return value
  throw fieldError(path, value, 'user, assistant or system')
}

function readSystem(value: Json | undefined): Message | undefined {
  if (isAbsent(value)) return undefined
  const native = { dialect: 'messages', value: { role: 'system', content: value } } as const
  if (typeof value === 'string') return { role: 'system', parts: [{ type: 'text', text: value }], native }
  if (!Array.isArray(value)) throw fieldError('system', value, 'a string or an array of text blocks')
  const parts = readBlocks(value as readonly Json[], 'system')
  parts.forEach((part, index) => {
    if (part.type !== 'text') throw fieldError(`system[${index}].type`, part.native?.value['type'], "'text'")
  })
  return { role: 'system', parts, native }
}

function readContent(content: Json | undefined, path: string): readonly Part[] {
  return readContentParts(content, path, readBlock)
}

function readBlocks(blocks: readonly Json[], path: string): readonly Part[] {
  return blocks.map((block, index) => readBlock(block, `${path}[${index}]`))
}

function readBlock(value: Json, path: string): Part {
  const block = objectAt(value, path)
  const native: Native = { dialect: 'messages', value: block }
  switch (stringAt(block['type'], `${path}.type`)) {
    case 'text':
      return { type: 'text', text: stringAt(block['text'], `${path}.text`), native }
    case 'image': {
      const source = readSource(block, path)
      return source === undefined ? { type: 'opaque', native } : { type: 'image', source, native }
    }
    case 'document':
      return readDocument(native, path)
    case 'tool_use':
      return {
        type: 'tool-call',
        id: stringAt(block['id'], `${path}.id`),
        name: stringAt(block['name'], `${path}.name`),
        input: exactText(objectAt(block['input'], `${path}.input`)),
        native,
      }
    case 'tool_result': {
      const content = isAbsent(block['content']) ? [] : readContent(block['content'], `${path}.content`)
      const callId = stringAt(block['tool_use_id'], `${path}.tool_use_id`)
      return { type: 'tool-result', callId, content, failed: block['is_error'] === true, native }
    }
    case 'thinking':
      return {
        type: 'thinking',
        text: stringAt(block['thinking'], `${path}.thinking`),
        ...(typeof block['signature'] === 'string' ? { signature: block['signature'] } : {}),
        native,
      }
    case 'redacted_thinking':
      return { type: 'thinking', text: stringAt(block['data'], `${path}.data`), redacted: true, native }
    default:
      return { type: 'opaque', native }
  }
}

function readDocument(native: Native, path: string): Part {
  const source = readTextSource(native.value, path) ?? readSource(native.value, path)
  if (source === undefined) return { type: 'opaque', native }
  const title = asString(native.value['title'])
  return { type: 'document', source, ...(title !== undefined && { title }), native }
}

function readTextSource(block: JsonObject, path: string): DocumentPart['source'] | undefined {
  const source = objectAt(block['source'], `${path}.source`)
  if (source['type'] === 'text') return { type: 'text', text: stringAt(source['data'], `${path}.source.data`) }
  if (source['type'] !== 'content') return undefined
  const parts = readContent(source['content'], `${path}.source.content`)
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return texts.length === parts.length ? { type: 'text', text: texts.join('\n') } : undefined
}

function readSource(block: JsonObject, path: string): Source | undefined {
  const sourcePath = `${path}.source`
  const source = objectAt(block['source'], sourcePath)
  switch (stringAt(source['type'], `${sourcePath}.type`)) {
    case 'base64':
      return {
        type: 'base64',
        mediaType: stringAt(source['media_type'], `${sourcePath}.media_type`),
        data: stringAt(source['data'], `${sourcePath}.data`),
      }
    case 'url':
      return { type: 'url', url: stringAt(source['url'], `${sourcePath}.url`) }
    case 'file':
      return { type: 'file', id: stringAt(source['file_id'], `${sourcePath}.file_id`) }
    default:
      return undefined
  }
}

export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const model = readModelName(body['model'])
  requireMaxTokens(body)
  const settings = readSettings(body)
  const messages = readMessageList(body['messages'], readMessage)
  const system = readSystem(body['system'])
  return {
    native: { dialect: 'messages', value: body, received, settings },
    model,
    messages: system === undefined ? messages : [system, ...messages],
    settings,
    tools: readTools(body['tools']),
    stream: booleanAt(body['stream'], 'stream') ?? false,
  }
}

/** The format documents no limit, and agents with many MCP servers declare hundreds of tools. */
const MAX_TOOLS = 10_000

function readTools(value: Json | undefined): readonly Tool[] {
  if (isAbsent(value)) return []
  return arrayAt(value, 'tools', MAX_TOOLS).map((item, index) => readTool(item, `tools[${index}]`))
}

function readTool(value: Json, path: string): Tool {
  const tool = objectAt(value, path)
  const native = { dialect: 'messages', value: tool } as const
  const type = isAbsent(tool['type']) ? 'custom' : stringAt(tool['type'], `${path}.type`)
  if (type !== 'custom') return { name: asString(tool['name']) ?? type, native }
  const name = stringAt(tool['name'], `${path}.name`)
  if (name === '') throw fieldError(`${path}.name`, name, 'a non-empty string')
  return {
    name,
    ...(typeof tool['description'] === 'string' ? { description: tool['description'] } : {}),
    parameters: objectAt(tool['input_schema'], `${path}.input_schema`),
    ...(typeof tool['strict'] === 'boolean' ? { strict: tool['strict'] } : {}),
    native,
  }
}
