import {
  definedSettings,
  MAX_OUTPUT_TOKENS,
  readFunctionTool,
  readToolChoice,
  schemaShape,
  type Changes,
} from '../settings.ts'
import { asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { AnswerShape, Native, Settings, Tool, ToolChoice } from '../../core/prompt.ts'
import { arrayAt, badField, booleanAt, isAbsent, numberAt, objectAt, stringAt } from '../fields.ts'

const MAX_CHOICES = 128
const MAX_STOPS = 16
const LIMIT = { least: 1, most: MAX_OUTPUT_TOKENS, whole: true } as const
const LIMIT_FIELDS = ['max_tokens', 'max_completion_tokens'] as const

/**
 * Reads the parameters of the canonical prompt. Of two limits the greater counts, because an upstream may obey either.
 * The maximum temperature is an option of the operator and is checked elsewhere.
 */
export function readSettings(body: JsonObject): Settings {
  const old = numberAt(body['max_tokens'], 'max_tokens', LIMIT)
  const limit = numberAt(body['max_completion_tokens'], 'max_completion_tokens', LIMIT)
  const topK = body['top_k']
  return definedSettings({
    maxTokens: old === undefined || limit === undefined ? (limit ?? old) : Math.max(old, limit),
    temperature: numberAt(body['temperature'], 'temperature', { least: 0 }),
    topP: numberAt(body['top_p'], 'top_p', { least: 0, most: 1 }),
    topK: typeof topK === 'number' && Number.isInteger(topK) && topK > 0 ? topK : undefined,
    stop: readStop(body['stop']),
    toolChoice: readToolChoice(body['tool_choice'] ?? body['function_call'], (choice) =>
      isJsonObject(choice['function']) ? choice['function']['name'] : choice['name'],
    ),
    parallelToolCalls: booleanAt(body['parallel_tool_calls'], 'parallel_tool_calls'),
    shape: readShape(body['response_format']),
    choices: numberAt(body['n'], 'n', { least: 1, most: MAX_CHOICES, whole: true }),
    effort: asString(body['reasoning_effort']),
    user: asString(body['user'] ?? body['safety_identifier']) || undefined,
  })
}

function readStop(value: Json | undefined): readonly string[] | undefined {
  if (isAbsent(value)) return undefined
  if (typeof value === 'string') return [value]
  if (!Array.isArray(value)) throw badField('stop', value, 'a string or an array of strings')
  return arrayAt(value, 'stop', MAX_STOPS).map((item, index) => stringAt(item, `stop[${index}]`))
}

/** Returns undefined for plain text and for unknown formats, which are passed on unchanged. */
function readShape(value: Json | undefined): AnswerShape | undefined {
  if (isAbsent(value)) return undefined
  const format = objectAt(value, 'response_format')
  const type = stringAt(format['type'], 'response_format.type')
  if (type === 'json_object') return { type: 'json' }
  if (type !== 'json_schema') return undefined
  return schemaShape(objectAt(format['json_schema'], 'response_format.json_schema'))
}

function writeShape(shape: AnswerShape): JsonObject {
  if (shape.type === 'json') return { type: 'json_object' }
  const { name = 'answer', schema, strict } = shape
  return { type: 'json_schema', json_schema: { name, schema, strict } }
}

/** Returns the fields of a body that must change to match the settings. For an empty body these are all settings. */
export function changedSettings(body: JsonObject, settings: Settings, model: string): Changes {
  const before = readSettings(body)
  const changes: Changes = {}
  const compare = (name: keyof Settings, field: string, value: Json | undefined) => {
    if (JSON.stringify(before[name]) !== JSON.stringify(settings[name])) changes[field] = value
  }
  const { toolChoice, shape } = settings
  compare('temperature', 'temperature', settings.temperature)
  compare('topP', 'top_p', settings.topP)
  compare('topK', 'top_k', settings.topK)
  compare('stop', 'stop', settings.stop)
  compare('parallelToolCalls', 'parallel_tool_calls', settings.parallelToolCalls)
  compare('choices', 'n', settings.choices)
  // No stage removes these settings, so a setting that the prompt lacks stays as it is in the body.
  if (settings.effort !== undefined) compare('effort', 'reasoning_effort', settings.effort)
  if (settings.user !== undefined) compare('user', 'user', settings.user)
  compare('toolChoice', 'tool_choice', toolChoice === undefined ? undefined : writeToolChoice(toolChoice))
  compare('shape', 'response_format', shape === undefined ? undefined : writeShape(shape))
  return { ...changes, ...changedLimit(body, before.maxTokens, settings.maxTokens, model) }
}

function changedLimit(body: JsonObject, before: number | undefined, now: number | undefined, model: string): Changes {
  if (before === now) return {}
  const used = LIMIT_FIELDS.filter((field) => !isAbsent(body[field]))
  if (used.length === 0) return { [limitField(model)]: now }
  const changes: Changes = {}
  for (const field of used) {
    const own = body[field]
    const isLowered = now !== undefined && before !== undefined && now < before
    changes[field] = isLowered && typeof own === 'number' ? Math.min(own, now) : now
  }
  return changes
}

/** OpenAI models reject `max_tokens`; many servers of other models support only that field. */
function limitField(model: string): string {
  return /(^|\/)(gpt-(?!oss)|o\d|chatgpt-)/.test(model) ? 'max_completion_tokens' : 'max_tokens'
}

/** Returns true when the caller requested usage in the stream. */
export function asksForUsage(body: JsonObject): boolean {
  const options = body['stream_options']
  return isJsonObject(options) && options['include_usage'] === true
}

const MAX_TOOLS = 128

/** `tools`, and `functions` as they were called before: both are tools where tools are forbidden. */
export function readTools(body: JsonObject): readonly Tool[] {
  const tools = isAbsent(body['tools']) ? [] : arrayAt(body['tools'], 'tools', MAX_TOOLS)
  const functions = isAbsent(body['functions']) ? [] : arrayAt(body['functions'], 'functions', MAX_TOOLS)
  return [
    ...tools.map((item, index) => readTool(item, `tools[${index}]`)),
    ...functions.map((item, index) => readFunction(item, item, `functions[${index}]`)),
  ]
}

function readTool(item: Json, param: string): Tool {
  const value = objectAt(item, param, 'a tool: an object with a type')
  const type = stringAt(value['type'], `${param}.type`)
  if (type === 'function') return readFunction(value['function'], value, `${param}.function`)
  const declared = value[type]
  const name = isJsonObject(declared) && typeof declared['name'] === 'string' ? declared['name'] : type
  return { name, native: { dialect: 'openai', value } }
}

function readFunction(declared: Json | undefined, whole: Json, param: string): Tool {
  const value = objectAt(declared, param, 'an object with a name')
  const native: Native = { dialect: 'openai', value: objectAt(whole, param) }
  return readFunctionTool(value, native, param)
}

/** Returns a tool of this format unchanged, and a function of another format as this format declares it. */
export function writeTool(tool: Tool): JsonObject {
  const { native } = tool
  if (native.dialect === 'openai' && native.value['type'] !== undefined) return native.value
  const { name, description, parameters, strict } = tool
  return { type: 'function', function: { name, description, parameters, strict } }
}

function writeToolChoice(choice: ToolChoice): Json {
  return choice.type === 'tool' ? { type: 'function', function: { name: choice.name } } : choice.type
}
