import { asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { AnswerShape, Native, Settings, Tool, ToolChoice } from '../../core/prompt.ts'
import { arrayAt, badField, booleanAt, isAbsent, numberAt, objectAt, stringAt } from '../fields.ts'

/** No model answers with more; what is greater is a mistake. */
const MOST_TOKENS = 2 ** 31 - 1

/** The parameters that the canonical prompt knows. Throws `invalid-request` for what the gateway must know and cannot use. */
export function readSettings(body: JsonObject): Settings {
  const text = isAbsent(body['text']) ? {} : objectAt(body['text'], 'text')
  const reasoning = isAbsent(body['reasoning']) ? {} : objectAt(body['reasoning'], 'reasoning')
  const limits = { least: 1, most: MOST_TOKENS, whole: true }
  const settings: { readonly [name in keyof Settings]?: Settings[name] | undefined } = {
    maxTokens: numberAt(body['max_output_tokens'], 'max_output_tokens', limits),
    temperature: numberAt(body['temperature'], 'temperature', { least: 0, most: 2 }),
    topP: numberAt(body['top_p'], 'top_p', { least: 0, most: 1 }),
    toolChoice: readToolChoice(body['tool_choice']),
    parallelToolCalls: booleanAt(body['parallel_tool_calls'], 'parallel_tool_calls'),
    shape: readShape(text['format']),
    effort: asString(reasoning['effort']),
    user: asString(body['user'] ?? body['safety_identifier']) || undefined,
  }
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined))
}

/** Undefined for plain text and for forms that this library does not know; they leave as they came. */
function readShape(value: Json | undefined): AnswerShape | undefined {
  if (isAbsent(value)) return undefined
  const format = objectAt(value, 'text.format')
  const type = stringAt(format['type'], 'text.format.type')
  if (type === 'json_object') return { type: 'json' }
  if (type !== 'json_schema') return undefined
  const { name, schema, strict } = format
  return {
    type: 'schema',
    ...(typeof name === 'string' ? { name } : {}),
    schema: schema ?? {},
    ...(typeof strict === 'boolean' ? { strict } : {}),
  }
}

function writeShape(shape: AnswerShape | undefined): JsonObject | undefined {
  if (shape === undefined) return undefined
  if (shape.type === 'json') return { type: 'json_object' }
  const { name = 'answer', schema, strict } = shape
  return { type: 'json_schema', name, schema, strict }
}

/** Body fields and their new values; undefined removes a field. */
export type Changes = Record<string, Json | undefined>

/** What must change in a body so that it says these settings; for an empty body that is every setting. */
export function changedSettings(body: JsonObject, settings: Settings): Changes {
  const before = readSettings(body)
  const changes: Changes = {}
  const compare = (name: keyof Settings, field: string, value: Json | undefined): void => {
    if (JSON.stringify(before[name]) !== JSON.stringify(settings[name])) changes[field] = value
  }
  compare('maxTokens', 'max_output_tokens', settings.maxTokens)
  compare('temperature', 'temperature', settings.temperature)
  compare('topP', 'top_p', settings.topP)
  compare('parallelToolCalls', 'parallel_tool_calls', settings.parallelToolCalls)
  compare('toolChoice', 'tool_choice', writeToolChoice(settings.toolChoice))
  compare('shape', 'text', { ...asObject(body['text']), format: writeShape(settings.shape) })
  // No stage takes these back: where the prompt does not say them, the body may.
  if (settings.user !== undefined) compare('user', 'user', settings.user)
  if (settings.effort !== undefined) {
    compare('effort', 'reasoning', { ...asObject(body['reasoning']), effort: settings.effort })
  }
  return changes
}

const MOST_TOOLS = 128

export function readTools(value: Json | undefined): readonly Tool[] {
  if (isAbsent(value)) return []
  return arrayAt(value, 'tools', MOST_TOOLS).map((item, index) => readTool(item, `tools[${index}]`))
}

/** The fields of a function are those of its tool; every other type is run or known by the vendor. */
function readTool(item: Json, param: string): Tool {
  const value = objectAt(item, param, 'a tool: an object with a type')
  const native: Native = { dialect: 'responses', value }
  const type = stringAt(value['type'], `${param}.type`)
  const { name, description, parameters, strict } = value
  if (type !== 'function') return { name: asString(name) ?? type, native }
  if (!isAbsent(parameters) && !isJsonObject(parameters)) {
    throw badField(`${param}.parameters`, parameters, 'a JSON schema object')
  }
  return {
    name: stringAt(name, `${param}.name`),
    ...(typeof description === 'string' ? { description } : {}),
    parameters: parameters ?? { type: 'object', properties: {} },
    ...(typeof strict === 'boolean' ? { strict } : {}),
    native,
  }
}

/** A tool as it came where it is of this format; a function of another one as this one declares it. */
export function writeTool({ native, name, description, parameters, strict }: Tool): JsonObject {
  if (native.dialect === 'responses') return native.value
  return { type: 'function', name, description, parameters: parameters ?? null, strict: strict ?? false }
}

/** Undefined for what this library does not know; it leaves as it came. */
function readToolChoice(choice: Json | undefined): ToolChoice | undefined {
  if (choice === 'auto' || choice === 'none' || choice === 'required') return { type: choice }
  if (isAbsent(choice)) return undefined
  if (!isJsonObject(choice)) throw badField('tool_choice', choice, 'auto, none, required or an object')
  const isFunction = choice['type'] === 'function' && typeof choice['name'] === 'string'
  return isFunction ? { type: 'tool', name: String(choice['name']) } : undefined
}

function writeToolChoice(choice: ToolChoice | undefined): Json | undefined {
  return choice?.type === 'tool' ? { type: 'function', name: choice.name } : choice?.type
}
