import { GatewayError } from '../../core/errors.ts'
import { asObject, type JsonObject } from '../../core/json.ts'
import type { Prompt } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { leftOut, type Obstacle, type Origin } from '../origin.ts'
import { originOf } from '../origin-table.ts'
import { withUniqueCalls } from './call-ids.ts'
import { writeSettings } from './settings.ts'
import { toolsOnceUsed, writeTool } from './tools.ts'
import { checkToolPairs, writeTurns, type Placed } from './turns.ts'
import { writeBlocks } from './write-blocks.ts'

/** This format has no setting for an answer of any JSON object. */
const JSON_INSTRUCTION: JsonObject = {
  type: 'text',
  text: 'Answer with exactly one JSON object: no other words before or after it, and no code fence.',
}

/** The answer's limit where the caller set none: the format requires one. */
const DEFAULT_MAX_TOKENS = 4096

/**
 * A request of another format as a message request. Throws `invalid-request`, naming the field, for what cannot be said there and
 * would change the answer; what is only a hint is left out and named in `ignored`.
 */
export function translateToMessages(prompt: Prompt, model: string): WrittenPrompt {
  const origin = originOf(prompt)
  const ignored = checkCarryOver(prompt, origin)
  const { maxTokens = DEFAULT_MAX_TOKENS, user, effort, ...settings } = prompt.settings
  const placed = withUniqueCalls(prompt.messages).map((message, index): Placed => ({
    message,
    path: origin.pathOf(prompt, index),
  }))
  const system = [
    ...placed.filter(isSystem).flatMap(({ message, path }) => writeBlocks(message.parts, path)),
    ...(settings.shape?.type === 'json' ? [JSON_INSTRUCTION] : []),
  ]
  const written = writeSettings(settings)
  const messages = writeTurns(placed.filter((item) => !isSystem(item)))
  if (messages.length === 0) {
    throw cannot('messages', 'messages hold nothing to answer: send at least one user message that is not empty')
  }
  checkToolPairs(messages)
  const body: JsonObject = {
    model,
    max_tokens: maxTokens,
    ...(system.length === 0 ? {} : { system }),
    messages,
    ...written,
    ...(effort === undefined ? {} : { output_config: { ...asObject(written['output_config']), effort } }),
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

/** The names of what is left out; throws for what must not be. */
function checkCarryOver(prompt: Prompt, { beyond }: Origin): readonly string[] {
  const hints = leftOut(prompt, beyond(prompt), refusal)
  prompt.tools.forEach((tool, index) => {
    if (tool.parameters === undefined) throw cannot(`tools[${index}].type`, 'this model takes only functions as tools')
  })
  return hints
}

function refusal({ param, what, details }: Obstacle): GatewayError {
  return new GatewayError(
    'invalid-request',
    `${param}: ${what} cannot be sent to this model, which is reached in the message format. Leave it out or choose another model.`,
    { param, ...(details === undefined ? {} : { details }) },
  )
}

function cannot(param: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `${param}: ${problem}.`, { param })
}
