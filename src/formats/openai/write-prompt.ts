import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Prompt, Tool } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { replaceModel } from '../parse-body.ts'
import { translate } from '../translation.ts'
import { asksForUsage, changedSettings, type Changes } from './settings.ts'
import { writeTool } from './tools.ts'
import { writeMessages } from './write-messages.ts'

/**
 * The body for an upstream of this dialect. Nothing is added but the wish for usage in streams, by which streams are
 * billed; unchanged parts leave as they came.
 */
export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  return prompt.native.dialect === 'openai' ? writeOwn(prompt, model) : translate('openai', prompt, model)
}

function writeOwn(prompt: Prompt, model: string): WrittenPrompt {
  const { value, received } = prompt.native
  const changes: Changes = {
    ...(prompt.settings === prompt.native.settings ? {} : changedSettings(value, prompt.settings, model)),
    ...changedStream(value, prompt.stream),
    ...changedTools(value, prompt.tools),
    ...changedMessages(value, prompt),
  }
  const canSplice = received !== undefined && onlyAdds(value, changes)
  const body = canSplice ? replaceModel(received, model, changes) : JSON.stringify({ ...value, model, ...changes })
  return { body, ignored: [] }
}

function onlyAdds(value: JsonObject, changes: Changes): boolean {
  return Object.entries(changes).every(([field, now]) => now !== undefined && value[field] === undefined)
}

function changedStream(value: JsonObject, stream: boolean): Changes {
  const asked = value['stream'] === true
  if (!stream) return asked ? { stream: undefined, stream_options: undefined } : {}
  const usage = asksForUsage(value) ? {} : { stream_options: withUsage(value['stream_options']) }
  return asked ? usage : { stream: true, ...usage }
}

function withUsage(options: Json | undefined): JsonObject {
  return { ...(isJsonObject(options) ? options : {}), include_usage: true }
}

function changedTools(value: JsonObject, tools: readonly Tool[]): Changes {
  const before = [...listOf(value['tools']), ...listOf(value['functions'])]
  const isSame = before.length === tools.length && tools.every((tool, index) => tool.native.value === before[index])
  if (isSame) return {}
  return { tools: tools.length === 0 ? undefined : tools.map(writeTool), functions: undefined }
}

function changedMessages(value: JsonObject, prompt: Prompt): Changes {
  const before = listOf(value['messages'])
  const { messages } = prompt
  const isSame =
    before.length === messages.length && messages.every((message, index) => message.native?.value === before[index])
  return isSame ? {} : { messages: writeMessages(messages, (index) => `messages[${index}]`) }
}

function listOf(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : []
}
