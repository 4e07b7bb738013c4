import type { Changes } from '../settings.ts'
import {
  changedTools,
  isAsReceived,
  translate,
  type UpstreamFormat,
  writeOwnBody,
  type WrittenPrompt,
} from '../format.ts'
import { asArray, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Prompt } from '../../core/prompt.ts'
import { isPlainMessages } from '../answer-fields.ts'
import { readCompletion, stepReader } from './answer-reader.ts'
import { readFailure } from '../read-failure.ts'
import { isAbsent } from '../fields.ts'
import { changedSettings, writeMessageTool } from './settings.ts'
import { blocksOf } from './blocks.ts'
import { GatewayError } from '../../core/errors.ts'

/**
 * Returns the request body. In a prompt of this format, only the model and rewritten parts change. Other prompts are
 * translated.
 */
export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  if (prompt.native.dialect !== 'anthropic') return translate('anthropic', prompt, model)
  const { value, settings } = prompt.native
  return writeOwnBody(prompt, model, {
    ...(prompt.settings === settings ? {} : changedSettings(value, prompt.settings)),
    ...((value['stream'] === true) === prompt.stream ? {} : { stream: prompt.stream }),
    ...changedTools(asArray(value['tools']), prompt.tools, writeMessageTool),
    ...changedMessages(prompt),
  })
}

function changedMessages(prompt: Prompt): Changes {
  const body = prompt.native.value
  const [first, ...rest] = prompt.messages
  const system = isOuterSystem(first, body) ? first : undefined
  const conversation = system === undefined ? prompt.messages : rest
  const isSameSystem = system === undefined ? isAbsent(body['system']) : system.native !== undefined
  return {
    ...(isSameSystem ? {} : { system: system && blocksOf(system, 'system') }),
    ...(isAsReceived(conversation, asArray(body['messages']))
      ? {}
      : { messages: writeTurns(conversation.map((message, index) => ({ message, path: `messages[${index}]` }))) }),
  }
}

/** Returns true for a message that was read from `system`, and for a rewritten first system message. */
function isOuterSystem(first: Message | undefined, body: JsonObject): first is Message {
  if (first?.role !== 'system') return false
  return first.native === undefined || first.native.value['content'] === body['system']
}

export interface PathedMessage {
  readonly message: Message
  /** The path in the caller's request, such as `messages[3]`. */
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
 * Writes turns of alternating roles. Drops empty messages. Then joins adjacent messages with the same role into one
 * turn, with one result per call before other blocks.
 */
export function writeTurns(messages: readonly PathedMessage[]): readonly JsonObject[] {
  const turns: Turn[] = []
  for (const { message, path } of messages) {
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

/** Joins two results of the same call, because the format rejects a second result for a call. */
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
  return asArray(content)
}

/**
 * Throws `invalid-request` for a tool call without a result in the next turn, and for a result without a preceding
 * call, because the upstream's error is less specific. Calls in the last turn need no result.
 */
export function checkToolPairs(turns: readonly JsonObject[]): void {
  let open = new Set<string>()
  for (const turn of turns) {
    const blocks = contentBlocks(turn['content'])
    const answered = new Set(blocks.flatMap((block) => resultId(block) ?? []))
    for (const id of answered)
      if (!open.has(id)) throw unpaired(id, 'the preceding assistant message does not contain the call')
    for (const id of open) if (!answered.has(id)) throw unpaired(id, 'the next messages do not contain the result')
    open = new Set(blocks.flatMap((block) => callId(block) ?? []))
  }
}

function callId(block: Json): string | undefined {
  return isJsonObject(block) && block['type'] === 'tool_use' ? asString(block['id']) : undefined
}

function unpaired(id: string, problem: string): GatewayError {
  const message = `The tool call ${JSON.stringify(id.slice(0, 100))} and its result do not match: ${problem}.`
  return new GatewayError('invalid-request', `${message} Send every call with its result.`, { param: 'messages' })
}

/** The upstream side of the messages format. */
export const messagesUpstream: UpstreamFormat = {
  dialect: 'anthropic',
  writePrompt,
  readCompletion,
  stepReader,
  isPlain: isPlainMessages,
  readFailure,
}
