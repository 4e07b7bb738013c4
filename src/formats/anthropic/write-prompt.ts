import { asArray, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Prompt } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { replaceModel } from '../parse-body.ts'
import { isAbsent } from './checks.ts'
import { translate } from '../translation.ts'
import { changedFields } from './settings.ts'
import { writeTool } from './tools.ts'
import { writeTurns, type Placed } from './turns.ts'
import { blocksOf } from './write-blocks.ts'

/**
 * The body for an upstream of this format. A prompt that came in this format leaves as it came, with the model and
 * what was rewritten replaced; one of another format is translated.
 */
export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  if (prompt.native.dialect !== 'anthropic') return translate('anthropic', prompt, model)
  const changes = changesOf(prompt)
  const { value, received } = prompt.native
  if (Object.keys(changes).length === 0 && received !== undefined) {
    return { body: replaceModel(received, model), ignored: [] }
  }
  return { body: JSON.stringify({ ...value, ...changes, model }), ignored: [] }
}

/** The fields of the native body that no longer say what the prompt says; a field to be left out is `undefined`. */
function changesOf(prompt: Prompt): JsonObject {
  const body = prompt.native.value
  const changes: Record<string, Json | undefined> = { ...changedFields(body, prompt.settings) }
  if ((body['stream'] === true) !== prompt.stream) changes['stream'] = prompt.stream
  const tools = asArray(body['tools'])
  const sameTools =
    tools.length === prompt.tools.length && prompt.tools.every((tool, at) => tool.native.value === tools[at])
  if (!sameTools) changes['tools'] = prompt.tools.length === 0 ? undefined : prompt.tools.map(writeTool)
  return { ...changes, ...changedMessages(prompt) }
}

function changedMessages(prompt: Prompt): JsonObject {
  const body = prompt.native.value
  const [first, ...rest] = prompt.messages
  const system = isOuterSystem(first, body) ? first : undefined
  const conversation = system === undefined ? prompt.messages : rest
  const changes: Record<string, Json | undefined> = {}
  if (!isAsItCame(system, body)) changes['system'] = system === undefined ? undefined : blocksOf(system, 'system')
  if (!areAsTheyCame(conversation, asArray(body['messages']))) {
    changes['messages'] = writeTurns(conversation.map(placeAt))
  }
  return changes
}

/**
 * True when the first message belongs outside the messages: it was read from there, or it was rewritten and was not read
 * from a place within the messages.
 */
function isOuterSystem(first: Message | undefined, body: JsonObject): first is Message {
  if (first?.role !== 'system') return false
  return first.native === undefined || first.native.value['content'] === body['system']
}

function isAsItCame(system: Message | undefined, body: JsonObject): boolean {
  if (system === undefined) return isAbsent(body['system'])
  return system.native !== undefined
}

function areAsTheyCame(messages: readonly Message[], natives: readonly Json[]): boolean {
  return messages.length === natives.length && messages.every((message, at) => message.native?.value === natives[at])
}

function placeAt(message: Message, index: number): Placed {
  return { message, path: `messages[${index}]` }
}
