import type { Json, JsonObject } from '../../core/json.ts'
import type { Message, Prompt, ReceivedBody } from '../../core/prompt.ts'
import { arrayAt, badField, booleanAt, isAbsent, modelAt, objectAt } from '../fields.ts'
import { readBlocks, readContent } from './blocks.ts'
import { requireMaxTokens, readSettings, readTools } from './settings.ts'
import type { ClientFormat } from '../format.ts'
import { messageId, writeCompletion, stepWriter } from './answer-writer.ts'
import { writeMessageFailure, writeMessageFailureFrame } from '../failures.ts'
import { frameOf } from './block-writer.ts'

const MAX_MESSAGES = 10_000

/**
 * Reads a message request as a prompt. Fields that the gateway uses are validated; other fields are forwarded
 * unchanged. Throws `invalid-request` with the path of an invalid field.
 */
export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const model = modelAt(body['model'])
  requireMaxTokens(body)
  const settings = readSettings(body)
  const messages = readMessages(body['messages'])
  const system = readSystem(body['system'])
  return {
    native: { dialect: 'anthropic', value: body, received, settings },
    model,
    messages: system === undefined ? messages : [system, ...messages],
    settings,
    tools: readTools(body['tools']),
    stream: booleanAt(body['stream'], 'stream') ?? false,
  }
}

function readMessages(value: Json | undefined): readonly Message[] {
  const items = arrayAt(value, 'messages', MAX_MESSAGES)
  if (items.length === 0) throw badField('messages', value, 'at least one message')
  return items.map((item, index) => readMessage(item, `messages[${index}]`))
}

function readMessage(value: Json, path: string): Message {
  const message = objectAt(value, path)
  return {
    role: readRole(message['role'], `${path}.role`),
    parts: readContent(message['content'], `${path}.content`),
    native: { dialect: 'anthropic', value: message },
  }
}

function readRole(value: Json | undefined, path: string): 'user' | 'assistant' | 'system' {
  if (value === 'user' || value === 'assistant' || value === 'system') return value
  throw badField(path, value, "'user', 'assistant' or 'system'")
}

/** Reads the system prompt as the first message, with its own native form. */
function readSystem(value: Json | undefined): Message | undefined {
  if (isAbsent(value)) return undefined
  const native = { dialect: 'anthropic', value: { role: 'system', content: value } } as const
  if (typeof value === 'string') return { role: 'system', parts: [{ type: 'text', text: value }], native }
  if (!Array.isArray(value)) throw badField('system', value, 'a string or an array of text blocks')
  const parts = readBlocks(value as readonly Json[], 'system')
  parts.forEach((part, index) => {
    if (part.type !== 'text') throw badField(`system[${index}].type`, part.native?.value['type'], "'text'")
  })
  return { role: 'system', parts, native }
}

/** The client side of the message format. */
export const messagesClient: ClientFormat = {
  dialect: 'anthropic',
  readPrompt,
  writeCompletion,
  stepWriter,
  writeFailure: writeMessageFailure,
  writeFailureFrame: writeMessageFailureFrame,
  heartbeat: frameOf({ type: 'ping' }),
  answerId: messageId,
}
