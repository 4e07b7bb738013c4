import { asArray, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Prompt } from '../../core/prompt.ts'
import type { UpstreamFormat, WrittenPrompt } from '../format.ts'
import { isPlainMessages } from '../stream-events.ts'
import { readCompletion, stepReader } from './answer-reader.ts'
import { readFailure } from '../upstream-failures.ts'
import { replaceModel } from '../parse-body.ts'
import { isAbsent } from '../fields.ts'
import { translate } from '../translation.ts'
import { changedSettings, writeMessageTool } from './settings.ts'
import { blocksOf } from './blocks.ts'
import { GatewayError } from '../../core/errors.ts'

/**
 * Writes the body for an upstream of this format. A prompt of this format is sent as received, except for the model and
 * rewritten parts. A prompt of another format is translated.
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

/** Returns the fields of the native body that no longer match the prompt; `undefined` removes a field. */
function changesOf(prompt: Prompt): JsonObject {
  const body = prompt.native.value
  const changes: Record<string, Json | undefined> =
    prompt.settings === prompt.native.settings ? {} : changedSettings(body, prompt.settings)
  if ((body['stream'] === true) !== prompt.stream) changes['stream'] = prompt.stream
  const tools = asArray(body['tools'])
  const sameTools =
    tools.length === prompt.tools.length && prompt.tools.every((tool, at) => tool.native.value === tools[at])
  if (!sameTools) changes['tools'] = prompt.tools.length === 0 ? undefined : prompt.tools.map(writeMessageTool)
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
 * Returns true when the first message belongs into `system`: it was read from there, or it was rewritten and was not
 * read from `messages`.
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

function placeAt(message: Message, index: number): PathedMessage {
  return { message, path: `messages[${index}]` }
}

/** A message and its path in the caller's request. */
export interface PathedMessage {
  readonly message: Message
  /** The path in the caller's request: `messages[3]`. */
  readonly path: string
}

interface Member {
  readonly native: JsonObject | undefined
  readonly blocks: readonly Json[]
}

interface Turn {
  readonly role: string
  readonly members: Member[]
}

/**
 * Writes messages as turns of alternating roles. Neighbors of one role become one message, with tool results first and
 * one result per call. Messages that are neither merged nor rewritten are sent as received. Empty messages are dropped
 * before neighbors are joined.
 */
export function writeTurns(placed: readonly PathedMessage[]): readonly JsonObject[] {
  const turns: Turn[] = []
  for (const { message, path } of placed) {
    const native = message.native?.dialect === 'anthropic' ? message.native.value : undefined
    const member: Member = { native, blocks: blocksOf(message, path) }
    const role = message.role === 'tool' ? 'user' : message.role
    const last = turns.at(-1)
    if (last?.role === role && role !== 'system') last.members.push(member)
    else if (native !== undefined || member.blocks.length > 0) turns.push({ role, members: [member] })
  }
  return turns.map(writeTurn)
}

function writeTurn({ role, members }: Turn): JsonObject {
  const natives = members.map(({ native }) => native).filter((native) => native !== undefined)
  const [only] = natives
  if (members.length === 1 && only !== undefined) return only
  const blocks = members.flatMap((member) => member.blocks)
  const content = role === 'user' ? resultsFirst(blocks) : blocks
  return { ...natives.reduceRight((fields, native) => ({ ...fields, ...native }), {}), role, content }
}

function resultsFirst(blocks: readonly Json[]): readonly Json[] {
  const results = new Map<string, JsonObject>()
  const others: Json[] = []
  for (const block of blocks) {
    const id = resultId(block)
    if (id === undefined || !isJsonObject(block)) others.push(block)
    else results.set(id, joinResults(results.get(id), block))
  }
  return [...results.values(), ...others]
}

function resultId(block: Json): string | undefined {
  return isJsonObject(block) && block['type'] === 'tool_result' ? asString(block['tool_use_id']) : undefined
}

/** The format refuses two results for one call, so their contents are joined. */
function joinResults(first: JsonObject | undefined, second: JsonObject): JsonObject {
  if (first === undefined) return second
  const failed = first['is_error'] === true || second['is_error'] === true
  return {
    ...first,
    content: [...contentBlocks(first['content']), ...contentBlocks(second['content'])],
    ...(failed ? { is_error: true } : {}),
  }
}

function contentBlocks(content: Json | undefined): readonly Json[] {
  if (typeof content === 'string') return content.trim() === '' ? [] : [{ type: 'text', text: content }]
  return Array.isArray(content) ? (content as readonly Json[]) : []
}

/**
 * Throws `invalid-request` when a tool call has no result in the next turn, or a result no call in the previous turn.
 * An upstream would refuse it with a less helpful message. The last turn may end with open calls.
 */
export function checkToolPairs(turns: readonly JsonObject[]): void {
  let open = new Set<string>()
  for (const turn of turns) {
    const blocks = contentBlocks(turn['content'])
    const answered = new Set(blocks.flatMap((block) => resultId(block) ?? []))
    for (const id of answered) if (!open.has(id)) throw unpaired(id, 'no assistant message right before it calls it')
    for (const id of open) if (!answered.has(id)) throw unpaired(id, 'the messages right after the call hold no result')
    open = new Set(blocks.flatMap((block) => callId(block) ?? []))
  }
}

function callId(block: Json): string | undefined {
  return isJsonObject(block) && block['type'] === 'tool_use' ? asString(block['id']) : undefined
}

function unpaired(id: string, problem: string): GatewayError {
  const message = `The tool call ${JSON.stringify(id.slice(0, 100))} and its result do not belong together: ${problem}.`
  return new GatewayError('invalid-request', `${message} Send every call with its result.`, { param: 'messages' })
}

/** The message format as upstreams speak it. */
export const messagesUpstream: UpstreamFormat = {
  dialect: 'anthropic',
  writePrompt,
  readCompletion,
  stepReader,
  isPlain: isPlainMessages,
  readFailure,
}
