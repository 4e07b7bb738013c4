import { type BodyChanges, OUTPUT_TOKEN_BOUNDS, setIfDefined, type WritableSettings, ZERO_TO_ONE } from '../settings.ts'
import { asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import type { ResponseShape, Settings, ToolChoice } from '../../core/prompt.ts'
import { arrayAt, fieldError, isAbsent, numberAt, objectAt, describeRange, stringAt } from '../read-fields.ts'

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

function readShape(body: JsonObject): ResponseShape | undefined {
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

function writeShape(shape: ResponseShape | undefined): JsonObject | undefined {
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
