import { asObject, type Json, type JsonObject } from '../../core/json.ts'
import type { AnswerShape, Prompt, Settings, Tool, ToolChoice } from '../../core/prompt.ts'
import { arrayOf, callerComplaint, isAbsent, objectOf, sameJson, stringAt } from './checks.ts'

/** The format documents no limit. This is the limit of the clouds that serve the vendor's models. */
const MAX_STOP_SEQUENCES = 8_191

/** A check of a number, and its description for errors. */
interface NumberRule {
  readonly holds: (value: number) => boolean
  readonly expected: string
}

const FRACTION: NumberRule = { holds: (value) => value >= 0 && value <= 1, expected: 'a number from 0 to 1' }
const COUNT: NumberRule = {
  holds: (value) => Number.isSafeInteger(value) && value >= 0,
  expected: 'a whole number of 0 or more',
}
/** No model generates more tokens, so a greater value is a mistake. */
const MAX_TOKENS = 2 ** 31 - 1
const LIMIT: NumberRule = {
  holds: (value) => Number.isInteger(value) && value >= 1 && value <= MAX_TOKENS,
  expected: `a whole number from 1 to ${MAX_TOKENS}`,
}

/**
 * Reads the parameters of a message request. Throws `invalid-request` for an invalid value of a parameter that the
 * gateway uses. `null` means absent. `max_tokens` is not required here.
 */
export function readSettings(body: JsonObject): Settings {
  const choice = readToolChoice(body['tool_choice'])
  return {
    ...numberField(body, 'max_tokens', 'maxTokens', LIMIT),
    ...numberField(body, 'temperature', 'temperature', FRACTION),
    ...numberField(body, 'top_p', 'topP', FRACTION),
    ...numberField(body, 'top_k', 'topK', COUNT),
    ...readStop(body['stop_sequences']),
    ...choice,
    ...readShape(body),
    ...readEffort(body),
  }
}

function readEffort(body: JsonObject): Pick<Settings, 'effort'> {
  const effort = asObject(body['output_config'])?.['effort']
  return typeof effort === 'string' ? { effort } : {}
}

/** Throws when max_tokens is absent. The message format requires it. */
export function demandMaxTokens(body: JsonObject): void {
  if (isAbsent(body['max_tokens'])) throw callerComplaint('max_tokens', body['max_tokens'], LIMIT.expected)
}

function numberField<name extends string>(
  body: JsonObject,
  field: string,
  name: name,
  rule: NumberRule,
): { readonly [key in name]?: number } {
  const value = body[field]
  if (isAbsent(value)) return {}
  if (typeof value !== 'number' || !rule.holds(value)) throw callerComplaint(field, value, rule.expected)
  return { [name]: value } as { readonly [key in name]: number }
}

function readStop(value: Json | undefined): Pick<Settings, 'stop'> {
  if (isAbsent(value)) return {}
  const stop = arrayOf(value, 'stop_sequences', callerComplaint, MAX_STOP_SEQUENCES).map((item, index) => {
    if (typeof item !== 'string') throw callerComplaint(`stop_sequences[${index}]`, item, 'a string')
    return item
  })
  return { stop }
}

function readToolChoice(value: Json | undefined): Pick<Settings, 'toolChoice' | 'parallelToolCalls'> {
  if (isAbsent(value)) return {}
  const choice = objectOf(value, 'tool_choice', callerComplaint)
  const toolChoice = knownChoice(choice)
  const single = choice['disable_parallel_tool_use']
  return {
    ...(toolChoice === undefined ? {} : { toolChoice }),
    ...(typeof single === 'boolean' ? { parallelToolCalls: !single } : {}),
  }
}

function knownChoice(choice: JsonObject): ToolChoice | undefined {
  switch (stringAt(choice, 'type', 'tool_choice', callerComplaint)) {
    case 'auto':
      return { type: 'auto' }
    case 'none':
      return { type: 'none' }
    case 'any':
      return { type: 'required' }
    case 'tool':
      return { type: 'tool', name: stringAt(choice, 'name', 'tool_choice', callerComplaint) }
    default:
      return undefined
  }
}

function readShape(body: JsonObject): Pick<Settings, 'shape'> {
  const format = asObject(asObject(body['output_config'])?.['format']) ?? asObject(body['output_format'])
  if (format?.['type'] !== 'json_schema') return {}
  const schema = format['schema']
  return schema === undefined ? {} : { shape: { type: 'schema', schema } }
}

/** Returns the field `tool_choice`; undefined when no setting affects it. */
function writeToolChoice(settings: Settings): JsonObject | undefined {
  const { toolChoice, parallelToolCalls } = settings
  if (toolChoice === undefined && parallelToolCalls === undefined) return undefined
  if (toolChoice?.type === 'none') return { type: 'none' }
  const single = parallelToolCalls === undefined ? {} : { disable_parallel_tool_use: !parallelToolCalls }
  if (toolChoice?.type === 'tool') return { type: 'tool', name: toolChoice.name, ...single }
  return { type: toolChoice?.type === 'required' ? 'any' : 'auto', ...single }
}

/** Returns `output_config.format`; undefined for a shape that this format does not support. */
function writeShape(shape: AnswerShape | undefined): JsonObject | undefined {
  return shape?.type === 'schema' ? { type: 'json_schema', schema: shape.schema } : undefined
}

/** Settings with one body field each. */
const PLAIN_FIELDS = [
  ['maxTokens', 'max_tokens'],
  ['temperature', 'temperature'],
  ['topP', 'top_p'],
  ['topK', 'top_k'],
  ['stop', 'stop_sequences'],
] as const

/** Returns the settings as fields of a new body. */
export function writeSettings(settings: Settings): JsonObject {
  return changedFields({}, settings)
}

/**
 * Returns the fields of `body` that must change to match `settings`; `undefined` removes a field. Matching fields are
 * not in the result, so an unchanged body stays as received.
 */
export function changedFields(body: JsonObject, settings: Settings): JsonObject {
  const before = readSettings(body)
  const changes: Record<string, Json | undefined> = {}
  for (const [name, field] of PLAIN_FIELDS) {
    if (!sameJson(before[name], settings[name])) changes[field] = settings[name]
  }
  const choice = writeToolChoice(settings)
  if (!sameJson(writeToolChoice(before), choice)) changes['tool_choice'] = choice
  const shape = writeShape(settings.shape)
  if (!sameJson(writeShape(before.shape), shape)) {
    changes['output_config'] = { ...asObject(body['output_config']), format: shape }
    changes['output_format'] = undefined
  }
  return { ...changes, ...fittingThinking(body, before.maxTokens, settings.maxTokens) }
}

/** Minimum thinking budget of the format, in tokens. */
const MIN_THINKING = 1024

/** Thinking counts as output, so a thinking budget below the caller's limit must stay below a lowered limit. */
function fittingThinking(body: JsonObject, before: number | undefined, now: number | undefined): JsonObject {
  const thinking = asObject(body['thinking'])
  const budget = thinking?.['budget_tokens']
  if (typeof budget !== 'number' || before === undefined || now === undefined) return {}
  if (budget >= before || budget < now) return {}
  if (now <= MIN_THINKING) return { thinking: { type: 'disabled' } }
  return { thinking: { ...thinking, budget_tokens: now - 1 } }
}

/** The format documents no limit. Agents with many MCP servers declare hundreds of tools. */
const MAX_TOOLS = 10_000

/** Reads the tools of a message request. A tool with a vendor-defined `type` may have no name. */
export function readTools(value: Json | undefined): readonly Tool[] {
  if (isAbsent(value)) return []
  return arrayOf(value, 'tools', callerComplaint, MAX_TOOLS).map((item, index) => readTool(item, `tools[${index}]`))
}

function readTool(value: Json, path: string): Tool {
  const tool = objectOf(value, path, callerComplaint)
  const type = isAbsent(tool['type']) ? 'custom' : stringAt(tool, 'type', path, callerComplaint)
  const native = { dialect: 'anthropic', value: tool } as const
  if (type !== 'custom') return { name: typeof tool['name'] === 'string' ? tool['name'] : type, native }
  const name = stringAt(tool, 'name', path, callerComplaint)
  if (name === '') throw callerComplaint(`${path}.name`, name, 'a name')
  return {
    name,
    ...(typeof tool['description'] === 'string' ? { description: tool['description'] } : {}),
    parameters: objectOf(tool['input_schema'], `${path}.input_schema`, callerComplaint),
    ...(typeof tool['strict'] === 'boolean' ? { strict: tool['strict'] } : {}),
    native,
  }
}

/** Writes a function as this format declares it. The schema is kept, and a missing type is added. */
export function writeTool(tool: Tool): JsonObject {
  if (tool.native.dialect === 'anthropic') return tool.native.value
  const schema: JsonObject =
    tool.parameters === undefined ? { type: 'object', properties: {} } : { type: 'object', ...tool.parameters }
  return {
    name: tool.name,
    ...(tool.description === undefined ? {} : { description: tool.description }),
    input_schema: schema,
    ...(tool.strict === true ? { strict: true } : {}),
  }
}

/**
 * Returns declarations of tools that a conversation used but no longer declares, because the format refuses tool blocks
 * without declared tools. The caller must forbid their use by `tool_choice`.
 */
export function toolsOnceUsed(prompt: Prompt): readonly JsonObject[] {
  const names = new Set<string>()
  for (const message of prompt.messages) {
    for (const part of message.parts) if (part.type === 'tool-call') names.add(part.name)
  }
  return [...names].map((name) => ({ name, input_schema: { type: 'object', properties: {} } }))
}
