import type { Json, JsonObject } from '../../core/json.ts'
import type { Message, Native, Prompt, ReceivedBody } from '../../core/prompt.ts'
import { badField, booleanAt, isAbsent, modelAt, objectAt, stringAt } from '../fields.ts'
import { readInput } from './items.ts'
import { readSettings, readTools } from './settings.ts'
import type { ClientFormat } from '../format.ts'
import { writeFailure } from '../chat/failure.ts'
import { writeCompletion } from './answer.ts'
import { failureFrame } from './usage.ts'
import { stepWriter } from './stream-writer.ts'
import { responseTurns } from './previous-responses.ts'

/** Fields that refer to an input stored by the server. */
const HELD_INPUTS = ['previous_response_id', 'conversation', 'prompt'] as const

/**
 * Reads a responses request as a prompt. Fields that the gateway uses are validated strictly, all others are carried
 * unchanged. Throws `invalid-request` with the invalid `param`.
 */
export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const native: Native = { dialect: 'responses', value: body, received }
  const model = modelAt(body['model'])
  const system = readInstructions(body['instructions'])
  const messages = readConversation(body)
  const settings = readSettings(body)
  checkOthers(body)
  return {
    native,
    model,
    messages: system === undefined ? messages : [system, ...messages],
    settings,
    tools: readTools(body['tools']),
    stream: booleanAt(body['stream'], 'stream') ?? false,
  }
}

/** Instructions are not a part of the input: they become the first message, with a native of their own. */
function readInstructions(value: Json | undefined): Message | undefined {
  if (isAbsent(value)) return undefined
  const content = stringAt(value, 'instructions')
  const native: Native = { dialect: 'responses', value: { role: 'system', content } }
  return { role: 'system', parts: [{ type: 'text', text: content }], native }
}

function readConversation(body: JsonObject): readonly Message[] {
  const isHeld = HELD_INPUTS.some((field) => !isAbsent(body[field]))
  if (isHeld && isAbsent(body['input'])) return []
  const messages = readInput(body['input'])
  if (messages.length === 0 && !isHeld) throw badField('input', body['input'], 'a string or at least one item')
  return messages
}

function checkOthers(body: JsonObject): void {
  booleanAt(body['store'], 'store')
  if (!isAbsent(body['previous_response_id'])) {
    stringAt(body['previous_response_id'], 'previous_response_id', 'the id of a response')
  }
  if (!isAbsent(body['metadata'])) objectAt(body['metadata'], 'metadata')
}

/** The format of conversation compaction, whose requests and answers resemble those of the responses format. */
export function compactClient(): ClientFormat {
  return {
    ...responsesClient,
    readPrompt: (body, received) => ({ ...readPrompt(body, received), stream: false, operation: 'compact' }),
  }
}

/** The responses format as callers speak it. Its errors outside of streams are those of the chat format. */
export const responsesClient: ClientFormat = {
  dialect: 'responses',
  readPrompt,
  writeCompletion,
  stepWriter,
  writeFailure,
  writeFailureFrame: (failure) => failureFrame(failure, 0),
  heartbeat: 'comment',
  turns: responseTurns,
}
