import { GatewayError } from '../../core/errors.ts'
import { asObject, type JsonObject } from '../../core/json.ts'
import type { Prompt } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { withUniqueCalls } from './call-ids.ts'
import { ignoredFields, userOf } from './chat-fields.ts'
import { isAbsent } from './checks.ts'
import { writeSettings } from './settings.ts'
import { toolsOnceUsed, writeTool } from './tools.ts'
import { checkToolPairs, writeTurns, type Placed } from './turns.ts'
import { writeBlocks } from './write-blocks.ts'

/** The answer's limit where nobody set one: the format demands one. */
const DEFAULT_MAX_TOKENS = 4096

/**
 * A chat request as a message request. Throws `invalid-request`, naming the field, for what cannot be said there and
 * would change the answer; what is only a hint is left out and named in `ignored`.
 */
export function translatePrompt(prompt: Prompt, model: string): WrittenPrompt {
  const ignored = ignoredFields(prompt)
  checkReadable(prompt)
  const { maxTokens = DEFAULT_MAX_TOKENS, ...settings } = prompt.settings
  const placed = withUniqueCalls(prompt.messages).map((message, index): Placed => ({
    message,
    path: `messages[${index}]`,
  }))
  const system = placed.filter(isSystem).flatMap(({ message, path }) => writeBlocks(message.parts, path))
  const messages = writeTurns(placed.filter((item) => !isSystem(item)))
  if (messages.length === 0) {
    throw cannot('messages', 'messages hold nothing to answer: send at least one user message that is not empty')
  }
  checkToolPairs(messages)
  const user = userOf(prompt.native.value)
  const body: JsonObject = {
    model,
    max_tokens: maxTokens,
    ...(system.length === 0 ? {} : { system }),
    messages,
    ...writeSettings(settings),
    ...writeTools(prompt),
    ...(user === undefined ? {} : { metadata: { user_id: user } }),
    ...(prompt.stream ? { stream: true } : {}),
  }
  return { body: JSON.stringify(body), ignored }
}

function isSystem({ message }: Placed): boolean {
  return message.role === 'system'
}

/** Without tools there is nothing to choose from, and the format refuses a choice. */
function writeTools(prompt: Prompt): JsonObject {
  if (prompt.tools.length > 0) return { tools: prompt.tools.map(writeTool) }
  const tools = toolsOnceUsed(prompt)
  return tools.length === 0 ? { tool_choice: undefined } : { tools, tool_choice: { type: 'none' } }
}

/** What a chat request asked for in terms that the prompt does not have. */
function checkReadable(prompt: Prompt): void {
  const body = prompt.native.value
  const { settings } = prompt
  prompt.tools.forEach((tool, index) => {
    if (tool.parameters === undefined) throw cannot(`tools[${index}].type`, 'this model takes only functions as tools')
  })
  const choice = body['tool_choice'] ?? body['function_call']
  if (!isAbsent(choice) && settings.toolChoice === undefined) {
    throw cannot('tool_choice', "expected 'auto', 'none', 'required' or one function for this model")
  }
  const format = asObject(body['response_format'])
  if (format !== undefined && format['type'] !== 'text' && settings.shape?.type !== 'schema') {
    throw cannot('response_format', "this model answers in the shape of a 'json_schema' or in free text only")
  }
}

function cannot(param: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `${param}: ${problem}.`, { param })
}
