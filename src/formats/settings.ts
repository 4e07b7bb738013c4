import { asObject, asString, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { ResponseShape, Native, Settings, Tool, ToolChoice, ToolCallPart } from '../core/prompt.ts'
import {
  arrayAt,
  fieldError,
  booleanAt,
  isAbsent,
  numberAt,
  type NumberBounds,
  objectAt,
  stringAt,
} from './read-fields.ts'

export const OUTPUT_TOKEN_BOUNDS: NumberBounds = { min: 1, max: 2 ** 31 - 1, isInteger: true }

const MAX_CHOICES = 128
const MAX_STOP_SEQUENCES = 16
const MAX_TOOLS = 128
const NON_NEGATIVE: NumberBounds = { min: 0 }
export const ZERO_TO_ONE: NumberBounds = { min: 0, max: 1 }
const CHOICE_BOUNDS: NumberBounds = { min: 1, max: MAX_CHOICES, isInteger: true }
const TOKEN_LIMIT_FIELDS = ['max_tokens', 'max_completion_tokens'] as const

/** Body fields and their new values. Undefined removes a field. */
export type BodyChanges = Record<string, Json | undefined>

export type WritableSettings = { -readonly [Name in keyof Settings]: Settings[Name] }

/** Assigning settings one by one is faster than building an object and filtering out undefined values. */
export function setIfDefined<Name extends keyof Settings>(
  settings: WritableSettings,
  name: Name,
  value: Settings[Name] | undefined,
): void {
  if (value !== undefined) settings[name] = value
}

export function readChatSettings(body: JsonObject): Settings {
  const settings = readSharedSettings(body)
  const topK = body['top_k']
  for (const field of TOKEN_LIMIT_FIELDS) {
    const limit = numberAt(body[field], field, OUTPUT_TOKEN_BOUNDS)
    if (limit !== undefined) settings.maxTokens = Math.max(settings.maxTokens ?? 0, limit)
  }
  setIfDefined(settings, 'temperature', numberAt(body['temperature'], 'temperature', NON_NEGATIVE))
  if (typeof topK === 'number' && Number.isInteger(topK) && topK > 0) settings.topK = topK
  if (!isAbsent(body['stop'])) settings.stop = readStopSequences(body['stop'])
  const choiceField = isAbsent(body['tool_choice']) ? 'function_call' : 'tool_choice'
  if (!isAbsent(body[choiceField])) {
    setIfDefined(settings, 'toolChoice', readToolChoice(body[choiceField], choiceField, chatToolName))
  }
  if (!isAbsent(body['response_format'])) {
    setIfDefined(settings, 'shape', readShape(body['response_format'], 'response_format', 'json_schema'))
  }
  setIfDefined(settings, 'choices', numberAt(body['n'], 'n', CHOICE_BOUNDS))
  setIfDefined(settings, 'effort', asString(body['reasoning_effort']))
  // With the deprecated `functions`, a response contains at most one call.
  if (!isAbsent(body['functions'])) settings.parallelToolCalls ??= false
  return settings
}

export function readResponseSettings(body: JsonObject): Settings {
  const text = isAbsent(body['text']) ? {} : objectAt(body['text'], 'text')
  const reasoning = isAbsent(body['reasoning']) ? {} : objectAt(body['reasoning'], 'reasoning')
  const settings = readSharedSettings(body)
  setIfDefined(settings, 'maxTokens', numberAt(body['max_output_tokens'], 'max_output_tokens', OUTPUT_TOKEN_BOUNDS))
  setIfDefined(settings, 'temperature', numberAt(body['temperature'], 'temperature', { min: 0, max: 2 }))
  if (!isAbsent(body['tool_choice'])) {
    setIfDefined(settings, 'toolChoice', readToolChoice(body['tool_choice'], 'tool_choice', responseToolName))
  }
  if (!isAbsent(text['format'])) setIfDefined(settings, 'shape', readShape(text['format'], 'text.format'))
  setIfDefined(settings, 'effort', asString(reasoning['effort']))
  return settings
}

function readSharedSettings(body: JsonObject): WritableSettings {
  const settings: WritableSettings = {}
  setIfDefined(settings, 'topP', numberAt(body['top_p'], 'top_p', ZERO_TO_ONE))
  setIfDefined(settings, 'parallelToolCalls', booleanAt(body['parallel_tool_calls'], 'parallel_tool_calls'))
  setIfDefined(settings, 'user', asString(body['user'] ?? body['safety_identifier']) || undefined)
  return settings
}

function chatToolName(choice: JsonObject): Json | undefined {
  return isJsonObject(choice['function']) ? choice['function']['name'] : choice['name']
}

function responseToolName(choice: JsonObject): Json | undefined {
  return choice['type'] === 'function' ? choice['name'] : undefined
}

function readStopSequences(value: Json | undefined): readonly string[] {
  if (typeof value === 'string') return [value]
  if (!Array.isArray(value)) throw fieldError('stop', value, 'a string or an array of strings')
  return arrayAt(value, 'stop', MAX_STOP_SEQUENCES).map((item, index) => stringAt(item, `stop[${index}]`))
}

function readToolChoice(
  choice: Json | undefined,
  field: 'tool_choice' | 'function_call',
  nameOf: (choice: JsonObject) => Json | undefined,
): ToolChoice | undefined {
  if (choice === 'auto' || choice === 'none' || choice === 'required') return { type: choice }
  if (!isJsonObject(choice)) throw fieldError(field, choice, 'auto, none, required or an object')
  const name = nameOf(choice)
  return typeof name === 'string' ? { type: 'tool', name } : undefined
}

function readShape(value: Json | undefined, param: string, nestedField?: string): ResponseShape | undefined {
  const format = objectAt(value, param)
  const type = stringAt(format['type'], `${param}.type`)
  if (type === 'json_object') return { type: 'json' }
  if (type !== 'json_schema') return undefined
  const { name, schema, strict } =
    nestedField === undefined ? format : objectAt(format[nestedField], `${param}.${nestedField}`)
  return {
    type: 'schema',
    ...(typeof name === 'string' ? { name } : {}),
    schema: schema ?? {},
    ...(typeof strict === 'boolean' ? { strict } : {}),
  }
}

export function changedChatSettings(body: JsonObject, settings: Settings, model: string): BodyChanges {
  const before = readChatSettings(body)
  const { toolChoice: choice } = settings
  const changes = changesBetween(before, settings, {
    temperature: ['temperature', settings.temperature],
    topP: ['top_p', settings.topP],
    topK: ['top_k', settings.topK],
    stop: ['stop', settings.stop],
    parallelToolCalls: ['parallel_tool_calls', settings.parallelToolCalls],
    choices: ['n', settings.choices],
    effort: ['reasoning_effort', settings.effort],
    user: ['user', settings.user],
    toolChoice: [
      'tool_choice',
      choice?.type === 'tool' ? { type: 'function', function: { name: choice.name } } : choice?.type,
    ],
    shape: ['response_format', writeShape(settings.shape, 'json_schema')],
  })
  return { ...changes, ...changedTokenLimit(body, before.maxTokens, settings.maxTokens, model) }
}

export function changedResponseSettings(body: JsonObject, settings: Settings): BodyChanges {
  const { toolChoice: choice } = settings
  return changesBetween(readResponseSettings(body), settings, {
    maxTokens: ['max_output_tokens', settings.maxTokens],
    temperature: ['temperature', settings.temperature],
    topP: ['top_p', settings.topP],
    parallelToolCalls: ['parallel_tool_calls', settings.parallelToolCalls],
    toolChoice: ['tool_choice', choice?.type === 'tool' ? { type: 'function', name: choice.name } : choice?.type],
    shape: ['text', { ...asObject(body['text']), format: writeShape(settings.shape) }],
    user: ['user', settings.user],
    effort: ['reasoning', { ...asObject(body['reasoning']), effort: settings.effort }],
  })
}

const NEVER_REMOVED: ReadonlySet<string> = new Set(['effort', 'user'])

function changesBetween(
  before: Settings,
  after: Settings,
  fields: { readonly [K in keyof Settings]?: readonly [field: string, value: Json | undefined] },
): BodyChanges {
  const changes: BodyChanges = {}
  for (const name of Object.keys(fields) as (keyof Settings)[]) {
    const change = fields[name]
    if (change === undefined || (after[name] === undefined && NEVER_REMOVED.has(name))) continue
    if (JSON.stringify(before[name]) !== JSON.stringify(after[name])) changes[change[0]] = change[1]
  }
  return changes
}

function writeShape(shape: ResponseShape | undefined, nestedField?: string): JsonObject | undefined {
  if (shape === undefined) return undefined
  if (shape.type === 'json') return { type: 'json_object' }
  const { name = 'answer', schema, strict } = shape
  const fields = { name, schema, strict }
  return { type: 'json_schema', ...(nestedField === undefined ? fields : { [nestedField]: fields }) }
}

function changedTokenLimit(
  body: JsonObject,
  before: number | undefined,
  after: number | undefined,
  model: string,
): BodyChanges {
  if (before === after) return {}
  const limitFields = TOKEN_LIMIT_FIELDS.filter((field) => !isAbsent(body[field]))
  if (limitFields.length === 0) return { [tokenLimitField(model)]: after }
  const isLowered = after !== undefined && before !== undefined && after < before
  return Object.fromEntries(
    limitFields.map((field) => {
      const value = body[field]
      return [field, isLowered && typeof value === 'number' ? Math.min(value, after) : after]
    }),
  )
}

/** Newer OpenAI models reject `max_tokens`. Many servers of other models support only `max_tokens`. */
function tokenLimitField(model: string): string {
  return /(^|\/)(gpt-(?!oss)|o\d|chatgpt-)/.test(model) ? 'max_completion_tokens' : 'max_tokens'
}

export function requestsUsage(body: JsonObject): boolean {
  return asObject(body['stream_options'])?.['include_usage'] === true
}

/** Includes the deprecated `functions`. */
export function readChatTools(body: JsonObject): readonly Tool[] {
  const tools = isAbsent(body['tools']) ? [] : arrayAt(body['tools'], 'tools', MAX_TOOLS)
  const functions = isAbsent(body['functions']) ? [] : arrayAt(body['functions'], 'functions', MAX_TOOLS)
  return [
    ...tools.map((item, index) => readChatTool(item, `tools[${index}]`)),
    ...functions.map((item, index) =>
      readFunctionTool(item, { dialect: 'chat', value: asObject(item) ?? {} }, `functions[${index}]`),
    ),
  ]
}

function readChatTool(item: Json, param: string): Tool {
  const value = objectAt(item, param, 'a tool: an object with a type')
  const type = stringAt(value['type'], `${param}.type`)
  const native: Native = { dialect: 'chat', value }
  return type === 'function'
    ? readFunctionTool(value['function'], native, `${param}.function`)
    : { name: asString(asObject(value[type])?.['name']) ?? type, native }
}

export function readResponseTools(value: Json | undefined): readonly Tool[] {
  if (isAbsent(value)) return []
  return arrayAt(value, 'tools', MAX_TOOLS).map((item, index) => {
    const param = `tools[${index}]`
    const tool = objectAt(item, param, 'a tool: an object with a type')
    const native: Native = { dialect: 'responses', value: tool }
    const type = stringAt(tool['type'], `${param}.type`)
    return type === 'function'
      ? readFunctionTool(tool, native, param)
      : { name: asString(tool['name']) ?? type, native }
  })
}

export const NO_PARAMETERS: JsonObject = { type: 'object', properties: {} }

function readFunctionTool(declared: Json | undefined, native: Native, param: string): Tool {
  const { name, description, parameters, strict } = objectAt(declared, param, 'an object with a name')
  return {
    name: stringAt(name, `${param}.name`),
    ...(typeof description === 'string' ? { description } : {}),
    parameters: isAbsent(parameters)
      ? NO_PARAMETERS
      : objectAt(parameters, `${param}.parameters`, 'a JSON schema object'),
    ...(typeof strict === 'boolean' ? { strict } : {}),
    native,
  }
}

export function writeChatTool({ native, name, description, parameters, strict }: Tool): JsonObject {
  if (native.dialect === 'chat' && native.value['type'] !== undefined) return native.value
  return { type: 'function', function: { name, description, parameters, strict } }
}

export function writeResponseTool({ native, name, description, parameters, strict }: Tool): JsonObject {
  if (native.dialect === 'responses') return native.value
  return { type: 'function', name, description, parameters: parameters ?? null, strict: strict ?? false }
}

export function writeChatCall(part: ToolCallPart): JsonObject {
  if (part.native?.dialect === 'chat') return part.native.value
  return { id: part.id, type: 'function', function: { name: part.name, arguments: callArguments(part) } }
}

export function callArguments({ input }: ToolCallPart): string {
  return input.trim() === '' ? '{}' : input
}
