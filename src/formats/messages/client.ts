import { GatewayError } from '../../core/errors.ts'
import type { Json, JsonObject } from '../../core/json.ts'
import { isSafeModelName } from '../../core/model.ts'
import type { Message, Prompt, ReceivedBody } from '../../core/prompt.ts'
import { arrayOf, callerComplaint, isAbsent, objectOf } from './checks.ts'
import { readBlocks, readContent } from './blocks.ts'
import { demandMaxTokens, readSettings, readTools } from './settings.ts'
import type { ClientFormat } from '../format.ts'
import { messageId, writeCompletion } from './answer.ts'
import { writeFailure, writeFailureFrame } from './failure.ts'
import { frameOf } from './block-writer.ts'
import { stepWriter } from './stream-writer.ts'

const MAX_MESSAGES = 10_000

/**
 * Reads a message request as a prompt. Fields that the gateway uses are validated, all others are carried unchanged in
 * the natives. Throws `invalid-request` with the path of an invalid field.
 */
export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const model = readModel(body['model'])
  demandMaxTokens(body)
  const settings = readSettings(body)
  const messages = readMessages(body['messages'])
  const system = readSystem(body['system'])
  return {
    native: { dialect: 'anthropic', value: body, received, settings },
    model,
    messages: system === undefined ? messages : [system, ...messages],
    settings,
    tools: readTools(body['tools']),
    stream: readStream(body['stream']),
  }
}

function readModel(value: Json | undefined): string {
  if (typeof value !== 'string' || value === '') throw callerComplaint('model', value, 'the name of a model')
  if (isSafeModelName(value)) return value
  throw new GatewayError(
    'invalid-request',
    'model is no valid name; expected at most 200 letters, digits and the signs . _ : @ + - /',
    { param: 'model', code: 'invalid_model' },
  )
}

function readStream(value: Json | undefined): boolean {
  if (isAbsent(value)) return false
  if (typeof value !== 'boolean') throw callerComplaint('stream', value, 'true or false')
  return value
}

function readMessages(value: Json | undefined): readonly Message[] {
  const items = arrayOf(value, 'messages', callerComplaint, MAX_MESSAGES)
  if (items.length === 0) throw callerComplaint('messages', value, 'at least one message')
  return items.map((item, index) => readMessage(item, `messages[${index}]`))
}

function readMessage(value: Json, path: string): Message {
  const message = objectOf(value, path, callerComplaint)
  return {
    role: readRole(message['role'], `${path}.role`),
    parts: readContent(message['content'], `${path}.content`, callerComplaint),
    native: { dialect: 'anthropic', value: message },
  }
}

function readRole(value: Json | undefined, path: string): 'user' | 'assistant' | 'system' {
  if (value === 'user' || value === 'assistant' || value === 'system') return value
  throw callerComplaint(path, value, "'user', 'assistant' or 'system'")
}

/** Reads the system prompt as the first message, with a native of its own. */
function readSystem(value: Json | undefined): Message | undefined {
  if (isAbsent(value)) return undefined
  const native = { dialect: 'anthropic', value: { role: 'system', content: value } } as const
  if (typeof value === 'string') return { role: 'system', parts: [{ type: 'text', text: value }], native }
  if (!Array.isArray(value)) throw callerComplaint('system', value, 'a string or an array of text blocks')
  const parts = readBlocks(arrayOf(value, 'system', callerComplaint), 'system', callerComplaint)
  parts.forEach((part, index) => {
    if (part.type !== 'text') throw callerComplaint(`system[${index}].type`, part.native?.value['type'], "'text'")
  })
  return { role: 'system', parts, native }
}

/** The message format as callers speak it. */
export const messagesClient: ClientFormat = {
  dialect: 'anthropic',
  readPrompt,
  writeCompletion,
  stepWriter,
  writeFailure,
  writeFailureFrame,
  heartbeat: frameOf({ type: 'ping' }),
  answerId: messageId,
}
