import { GatewayError } from '../../core/errors.ts'
import { asObject, type JsonObject } from '../../core/json.ts'
import type { Message, Part, Prompt } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { omittedFields, refuseContentFor, type SourceFormat } from '../translation.ts'
import { toolsOnceUsed, writeSettings, writeTool } from './settings.ts'
import { checkToolPairs, writeTurns, type PathedMessage } from './upstream.ts'
import { writeBlocks } from './blocks.ts'

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
export function translateToMessages(prompt: Prompt, model: string, source: SourceFormat): WrittenPrompt {
  const ignored = omittedFields(prompt, source, refuse, '.type')
  const { maxTokens = DEFAULT_MAX_TOKENS, user, effort, ...settings } = prompt.settings
  const placed = withUniqueCalls(prompt.messages).map((message, index): PathedMessage => ({
    message,
    path: source.pathOf(prompt, index),
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

function isSystem({ message }: PathedMessage): boolean {
  return message.role === 'system'
}

/** Without tools there is nothing to choose from, and the format refuses a choice. */
function writeTools(prompt: Prompt): JsonObject {
  if (prompt.tools.length > 0) return { tools: prompt.tools.map(writeTool) }
  const tools = toolsOnceUsed(prompt)
  return tools.length === 0 ? { tool_choice: undefined } : { tools, tool_choice: { type: 'none' } }
}

const refuse = refuseContentFor('this model, which is reached in the message format')

function cannot(param: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `${param}: ${problem}.`, { param })
}

/**
 * The messages with ids of tool calls as this format wants them: letters, digits, `_` and `-` only, and never the same
 * id for two calls of a conversation. Chat clients number their calls from the start in each turn, or name them by the function.
 */
function withUniqueCalls(messages: readonly Message[]): readonly Message[] {
  const names: Names = { taken: new Set(), latest: new Map(), numbers: new Map() }
  return messages.map((message) => {
    const parts = message.parts.map((part) => renamed(part, names))
    return parts.every((part, index) => part === message.parts[index]) ? message : { ...message, parts }
  })
}

interface Names {
  readonly taken: Set<string>
  /** From an id as the caller wrote it to the one of its latest call. */
  readonly latest: Map<string, string>
  /** The last number that was added to an id: a conversation of thousands of equal ones stays linear. */
  readonly numbers: Map<string, number>
}

function renamed(part: Part, names: Names): Part {
  if (part.type === 'tool-call') {
    const id = freeId(part.id, names)
    names.taken.add(id)
    names.latest.set(part.id, id)
    return id === part.id ? part : { ...part, id }
  }
  if (part.type !== 'tool-result') return part
  const callId = names.latest.get(part.callId) ?? part.callId
  return callId === part.callId ? part : { ...part, callId }
}

function freeId(id: string, { taken, numbers }: Names): string {
  const safe = id.replace(/[^\w-]/g, '_') || 'call'
  if (!taken.has(safe)) return safe
  let next = numbers.get(safe) ?? 2
  while (taken.has(`${safe}_${next}`)) next++
  numbers.set(safe, next)
  return `${safe}_${next}`
}
