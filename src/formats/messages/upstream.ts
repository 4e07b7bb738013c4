import {
  type BodyChanges,
  NO_PARAMETERS,
  OUTPUT_TOKEN_BOUNDS,
  setIfDefined,
  type WritableSettings,
  ZERO_TO_ONE,
} from '../settings.ts'
import {
  changedTools,
  isAsReceived,
  translate,
  type UpstreamFormat,
  mergeChanges,
  writeNativeBody,
  type WrittenPrompt,
} from '../format.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { AnswerShape, Message, Prompt, Settings, Tool, ToolChoice } from '../../core/prompt.ts'
import { forEachInSteps, mapSlices, runSteps, type Steps } from '../../core/steps.ts'
import { canForwardMessages } from '../answer-fields.ts'
import { readCompletion, createReader } from './answer-reader.ts'
import { readFailure } from '../read-failure.ts'
import { arrayAt, fieldError, isAbsent, numberAt, objectAt, describeRange, stringAt } from '../parse-body.ts'
import { blocksOf } from './blocks.ts'

function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  checkToolChoice(prompt.settings, model)
  if (prompt.native.dialect !== 'anthropic') return runSteps(translate('anthropic', prompt, model))
  return writeMessagesBody(prompt, model)
}

function* writeInSteps(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  checkToolChoice(prompt.settings, model)
  if (prompt.native.dialect === 'anthropic') return writeMessagesBody(prompt, model)
  return yield* translate('anthropic', prompt, model)
}

function writeMessagesBody(prompt: Prompt, model: string): WrittenPrompt {
  const { value, settings } = prompt.native
  const changes = mergeChanges(
    prompt.settings === settings ? {} : changedSettings(value, prompt.settings),
    (value['stream'] === true) === prompt.stream ? {} : { stream: prompt.stream },
    changedTools(asArray(value['tools']), prompt.tools, writeMessageTool),
    changedMessages(prompt),
  )
  return writeNativeBody(prompt, model, changes)
}

/** Fable and Mythos accept forced tool calls only before version 5.1, Opus and Sonnet only before 5.5. Haiku accepts them. */
const NO_FORCED_TOOLS =
  /claude-(?:(?:fable|mythos)-5-[1-9]\d?|(?:opus|sonnet)-5-(?:[5-9]|[1-9]\d)|(?:fable|mythos|opus|sonnet)-(?:[6-9]|[1-9]\d))(?!\d)/

function checkToolChoice({ toolChoice }: Settings, model: string): void {
  if ((toolChoice?.type !== 'required' && toolChoice?.type !== 'tool') || !NO_FORCED_TOOLS.test(model)) return
  throw new GatewayError(
    'invalid-request',
    `The model ${model} does not support a tool_choice that forces a tool call. Use auto or none.`,
    { param: 'tool_choice' },
  )
}

function changedMessages(prompt: Prompt): BodyChanges {
  const body = prompt.native.value
  const [first, ...rest] = prompt.messages
  const system = isTopLevelSystem(first, body) ? first : undefined
  const conversation = system === undefined ? prompt.messages : rest
  const isSameSystem = system === undefined ? isAbsent(body['system']) : system.native !== undefined
  return {
    ...(isSameSystem ? {} : { system: system && blocksOf(system, 'system') }),
    ...(isAsReceived(conversation, asArray(body['messages']))
      ? {}
      : { messages: writeTurns(conversation.map((message, index) => ({ message, path: `messages[${index}]` }))) }),
  }
}

/** Returns true for the message that was read from `system`, and for a rewritten first system message. */
function isTopLevelSystem(first: Message | undefined, body: JsonObject): first is Message {
  if (first?.role !== 'system') return false
  return first.native === undefined || first.native.value['content'] === body['system']
}

export interface MessageWithPath {
  readonly message: Message
  readonly path: string
}

interface Turn {
  readonly role: string
  readonly members: { readonly native: JsonObject | undefined; readonly blocks: readonly Json[] }[]
}

/** Joins adjacent messages of one role, except system messages. Drops empty messages without a native form. */
function writeTurns(messages: readonly MessageWithPath[]): readonly JsonObject[] {
  return runSteps(writeTurnsInSteps(messages))
}

/** As `writeTurns`. */
export function* writeTurnsInSteps(messages: readonly MessageWithPath[]): Steps<readonly JsonObject[]> {
  const turns: Turn[] = []
  yield* forEachInSteps(messages, ({ message, path }) => {
    const native = message.native?.dialect === 'anthropic' ? message.native.value : undefined
    const member = { native, blocks: blocksOf(message, path) }
    const role = message.role === 'tool' ? 'user' : message.role
    const last = turns.at(-1)
    if (last?.role === role && role !== 'system') last.members.push(member)
    else if (native !== undefined || member.blocks.length > 0) turns.push({ role, members: [member] })
  })
  return yield* mapSlices(turns, (slice) => slice.map(writeTurn))
}

function writeTurn({ role, members }: Turn): JsonObject {
  const [first] = members
  if (members.length === 1 && first?.native !== undefined) return first.native
  const natives = members.flatMap(({ native }) => (native === undefined ? [] : [native]))
  const blocks = members.length === 1 && first !== undefined ? first.blocks : members.flatMap((member) => member.blocks)
  const content = role === 'user' ? putResultsFirst(blocks) : blocks
  return { ...natives.reduceRight((fields, native) => ({ ...fields, ...native }), {}), role, content }
}

function putResultsFirst(blocks: readonly Json[]): readonly Json[] {
  if (!blocks.some((block) => resultId(block) !== undefined)) return blocks
  const results = new Map<string, JsonObject>()
  const others: Json[] = []
  for (const block of blocks) {
    const id = resultId(block)
    if (id === undefined || !isJsonObject(block)) others.push(block)
    else results.set(id, joinResults(results.get(id), block))
  }
  return [...results.values(), ...others]
}

export function resultId(block: Json): string | undefined {
  return isJsonObject(block) && block['type'] === 'tool_result' ? asString(block['tool_use_id']) : undefined
}

/** The format rejects a second result for the same call. */
function joinResults(first: JsonObject | undefined, second: JsonObject): JsonObject {
  if (first === undefined) return second
  const failed = first['is_error'] === true || second['is_error'] === true
  return {
    ...first,
    content: [...contentBlocks(first['content']), ...contentBlocks(second['content'])],
    ...(failed ? { is_error: true } : {}),
  }
}

export function contentBlocks(content: Json | undefined): readonly Json[] {
  if (typeof content === 'string') return content.trim() === '' ? [] : [{ type: 'text', text: content }]
  return asArray(content)
}

/** Maximum number of stop sequences. Clouds that serve Claude enforce it, but the format documents no limit. */
const MAX_STOP_SEQUENCES = 8_191

const TOP_K_BOUNDS = { min: 0, max: Number.MAX_SAFE_INTEGER, isInteger: true } as const

export function readSettings(body: JsonObject): Settings {
  const choice = isAbsent(body['tool_choice']) ? {} : objectAt(body['tool_choice'], 'tool_choice')
  const disablesParallel = choice['disable_parallel_tool_use']
  const settings: WritableSettings = {}
  setIfDefined(settings, 'maxTokens', numberAt(body['max_tokens'], 'max_tokens', OUTPUT_TOKEN_BOUNDS))
  setIfDefined(settings, 'temperature', numberAt(body['temperature'], 'temperature', ZERO_TO_ONE))
  setIfDefined(settings, 'topP', numberAt(body['top_p'], 'top_p', ZERO_TO_ONE))
  setIfDefined(settings, 'topK', numberAt(body['top_k'], 'top_k', TOP_K_BOUNDS))
  setIfDefined(settings, 'stop', readStopSequences(body['stop_sequences']))
  if (!isAbsent(body['tool_choice'])) setIfDefined(settings, 'toolChoice', readToolChoice(choice))
  if (typeof disablesParallel === 'boolean') settings.parallelToolCalls = !disablesParallel
  setIfDefined(settings, 'shape', readShape(body))
  setIfDefined(settings, 'effort', asString(asObject(body['output_config'])?.['effort']))
  return settings
}

export function requireMaxTokens(body: JsonObject): void {
  if (isAbsent(body['max_tokens']))
    throw fieldError('max_tokens', body['max_tokens'], describeRange(OUTPUT_TOKEN_BOUNDS))
}

function readStopSequences(value: Json | undefined): readonly string[] | undefined {
  if (isAbsent(value)) return undefined
  return arrayAt(value, 'stop_sequences', MAX_STOP_SEQUENCES).map((item, index) =>
    stringAt(item, `stop_sequences[${index}]`),
  )
}

function readToolChoice(choice: JsonObject): ToolChoice | undefined {
  const type = stringAt(choice['type'], 'tool_choice.type')
  if (type === 'tool') return { type, name: stringAt(choice['name'], 'tool_choice.name') }
  if (type === 'any') return { type: 'required' }
  return type === 'auto' || type === 'none' ? { type } : undefined
}

function readShape(body: JsonObject): AnswerShape | undefined {
  const format = asObject(asObject(body['output_config'])?.['format']) ?? asObject(body['output_format'])
  if (format?.['type'] !== 'json_schema') return undefined
  const { schema } = format
  return schema === undefined ? undefined : { type: 'schema', schema }
}

function writeToolChoice(settings: Settings): JsonObject | undefined {
  const { toolChoice, parallelToolCalls } = settings
  if (toolChoice === undefined && parallelToolCalls === undefined) return undefined
  if (toolChoice?.type === 'none') return { type: 'none' }
  const parallelFields = parallelToolCalls === undefined ? {} : { disable_parallel_tool_use: !parallelToolCalls }
  if (toolChoice?.type === 'tool') return { type: 'tool', name: toolChoice.name, ...parallelFields }
  return { type: toolChoice?.type === 'required' ? 'any' : 'auto', ...parallelFields }
}

function writeShape(shape: AnswerShape | undefined): JsonObject | undefined {
  return shape?.type === 'schema' ? { type: 'json_schema', schema: shape.schema } : undefined
}

const FIELD_NAMES = [
  ['maxTokens', 'max_tokens'],
  ['temperature', 'temperature'],
  ['topP', 'top_p'],
  ['topK', 'top_k'],
  ['stop', 'stop_sequences'],
] as const

export function changedSettings(body: JsonObject, settings: Settings): BodyChanges {
  const before = readSettings(body)
  const changes: BodyChanges = {}
  for (const [name, field] of FIELD_NAMES) {
    if (!isEqual(before[name], settings[name])) changes[field] = settings[name]
  }
  const choice = writeToolChoice(settings)
  if (!isEqual(writeToolChoice(before), choice)) changes['tool_choice'] = choice
  const shape = writeShape(settings.shape)
  if (!isEqual(writeShape(before.shape), shape)) {
    changes['output_config'] = { ...asObject(body['output_config']), format: shape }
    changes['output_format'] = undefined
  }
  return { ...changes, ...changedThinking(body, before.maxTokens, settings.maxTokens) }
}

function isEqual(left: Json | undefined, right: Json | undefined): boolean {
  return JSON.stringify(left) === JSON.stringify(right)
}

const MIN_THINKING_TOKENS = 1024

/** Keeps the thinking budget below the output limit, because thinking tokens count as output. */
function changedThinking(body: JsonObject, before: number | undefined, after: number | undefined): JsonObject {
  const thinking = asObject(body['thinking'])
  const budget = thinking?.['budget_tokens']
  if (typeof budget !== 'number' || before === undefined || after === undefined) return {}
  if (budget >= before || budget < after) return {}
  if (after <= MIN_THINKING_TOKENS) return { thinking: { type: 'disabled' } }
  return { thinking: { ...thinking, budget_tokens: after - 1 } }
}

/** The format documents no limit, and agents with many MCP servers declare hundreds of tools. */
const MAX_TOOLS = 10_000

export function readTools(value: Json | undefined): readonly Tool[] {
  if (isAbsent(value)) return []
  return arrayAt(value, 'tools', MAX_TOOLS).map((item, index) => readTool(item, `tools[${index}]`))
}

function readTool(value: Json, path: string): Tool {
  const tool = objectAt(value, path)
  const native = { dialect: 'anthropic', value: tool } as const
  const type = isAbsent(tool['type']) ? 'custom' : stringAt(tool['type'], `${path}.type`)
  if (type !== 'custom') return { name: asString(tool['name']) ?? type, native }
  const name = stringAt(tool['name'], `${path}.name`)
  if (name === '') throw fieldError(`${path}.name`, name, 'a non-empty string')
  return {
    name,
    ...(typeof tool['description'] === 'string' ? { description: tool['description'] } : {}),
    parameters: objectAt(tool['input_schema'], `${path}.input_schema`),
    ...(typeof tool['strict'] === 'boolean' ? { strict: tool['strict'] } : {}),
    native,
  }
}

export function writeMessageTool(tool: Tool): JsonObject {
  if (tool.native.dialect === 'anthropic') return tool.native.value
  return {
    name: tool.name,
    ...(tool.description === undefined ? {} : { description: tool.description }),
    input_schema: tool.parameters === undefined ? NO_PARAMETERS : { type: 'object', ...tool.parameters },
    ...(tool.strict === true ? { strict: true } : {}),
  }
}

export const messagesUpstream: UpstreamFormat = {
  dialect: 'anthropic',
  writePrompt,
  writeInSteps,
  readCompletion,
  createReader,
  canForward: canForwardMessages,
  readFailure,
}
