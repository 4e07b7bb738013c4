import {
  definedSettings,
  MAX_OUTPUT_TOKENS,
  readFunctionTool,
  readToolChoice,
  schemaShape,
  type Changes,
} from '../settings.ts'
import { asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import type { AnswerShape, Native, Settings, Tool, ToolChoice } from '../../core/prompt.ts'
import { arrayAt, booleanAt, isAbsent, numberAt, objectAt, stringAt } from '../fields.ts'

/**
 * Reads the parameters of the canonical prompt. Throws `invalid-request` for an invalid value of a parameter that the
 * gateway uses.
 */
export function readSettings(body: JsonObject): Settings {
  const text = isAbsent(body['text']) ? {} : objectAt(body['text'], 'text')
  const reasoning = isAbsent(body['reasoning']) ? {} : objectAt(body['reasoning'], 'reasoning')
  const limits = { least: 1, most: MAX_OUTPUT_TOKENS, whole: true }
  return definedSettings({
    maxTokens: numberAt(body['max_output_tokens'], 'max_output_tokens', limits),
    temperature: numberAt(body['temperature'], 'temperature', { least: 0, most: 2 }),
    topP: numberAt(body['top_p'], 'top_p', { least: 0, most: 1 }),
    toolChoice: readToolChoice(body['tool_choice'], (choice) =>
      choice['type'] === 'function' ? choice['name'] : undefined,
    ),
    parallelToolCalls: booleanAt(body['parallel_tool_calls'], 'parallel_tool_calls'),
    shape: readShape(text['format']),
    effort: asString(reasoning['effort']),
    user: asString(body['user'] ?? body['safety_identifier']) || undefined,
  })
}

/** Returns undefined for plain text and for unknown formats, which are passed on unchanged. */
function readShape(value: Json | undefined): AnswerShape | undefined {
  if (isAbsent(value)) return undefined
  const format = objectAt(value, 'text.format')
  const type = stringAt(format['type'], 'text.format.type')
  if (type === 'json_object') return { type: 'json' }
  if (type !== 'json_schema') return undefined
  return schemaShape(format)
}

function writeShape(shape: AnswerShape | undefined): JsonObject | undefined {
  if (shape === undefined) return undefined
  if (shape.type === 'json') return { type: 'json_object' }
  const { name = 'answer', schema, strict } = shape
  return { type: 'json_schema', name, schema, strict }
}

/** Returns the fields of a body that must change to match the settings. For an empty body these are all settings. */
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
  // No stage removes these settings, so a setting that the prompt lacks stays as it is in the body.
  if (settings.user !== undefined) compare('user', 'user', settings.user)
  if (settings.effort !== undefined) {
    compare('effort', 'reasoning', { ...asObject(body['reasoning']), effort: settings.effort })
  }
  return changes
}

const MAX_TOOLS = 128

export function readTools(value: Json | undefined): readonly Tool[] {
  if (isAbsent(value)) return []
  return arrayAt(value, 'tools', MAX_TOOLS).map((item, index) => readTool(item, `tools[${index}]`))
}

/** The fields of a function are those of its tool; every other type is run or known by the vendor. */
function readTool(item: Json, param: string): Tool {
  const value = objectAt(item, param, 'a tool: an object with a type')
  const native: Native = { dialect: 'responses', value }
  const type = stringAt(value['type'], `${param}.type`)
  return type === 'function'
    ? readFunctionTool(value, native, param)
    : { name: asString(value['name']) ?? type, native }
}

/** A tool as it came where it is of this format; a function of another one as this one declares it. */
export function writeTool({ native, name, description, parameters, strict }: Tool): JsonObject {
  if (native.dialect === 'responses') return native.value
  return { type: 'function', name, description, parameters: parameters ?? null, strict: strict ?? false }
}

function writeToolChoice(choice: ToolChoice | undefined): Json | undefined {
  return choice?.type === 'tool' ? { type: 'function', name: choice.name } : choice?.type
}
