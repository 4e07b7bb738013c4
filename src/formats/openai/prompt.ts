import type { Json, JsonObject } from '../../core/json.ts'
import type { Native, Prompt, ReceivedBody } from '../../core/prompt.ts'
import { booleanAt, isAbsent, modelAt, objectAt } from '../fields.ts'
import { readMessages } from './read-messages.ts'
import { readSettings } from './settings.ts'
import { readTools } from './tools.ts'

/**
 * A chat request as a prompt. What the gateway must know is checked strictly; all else is carried untouched.
 * Throws `invalid-request` with the `param` that was wrong.
 */
export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const model = modelAt(body['model'])
  const messages = readMessages(body['messages'])
  const settings = readSettings(body)
  const tools = readTools(body)
  const stream = booleanAt(body['stream'], 'stream') ?? false
  checkStreamOptions(body['stream_options'])
  const native: Native = { dialect: 'openai', value: body, received, settings }
  return { native, model, messages, settings, tools, stream }
}

function checkStreamOptions(value: Json | undefined): void {
  if (isAbsent(value)) return
  const options = objectAt(value, 'stream_options')
  booleanAt(options['include_usage'], 'stream_options.include_usage')
}
