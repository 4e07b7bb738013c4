import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Native, Tool, ToolChoice } from '../../core/prompt.ts'
import { arrayAt, badField, isAbsent, objectAt, stringAt } from '../fields.ts'

const MOST_TOOLS = 128

/** `tools`, and `functions` as they were called before: both are tools where tools are forbidden. */
export function readTools(body: JsonObject): readonly Tool[] {
  const tools = isAbsent(body['tools']) ? [] : arrayAt(body['tools'], 'tools', MOST_TOOLS)
  const functions = isAbsent(body['functions']) ? [] : arrayAt(body['functions'], 'functions', MOST_TOOLS)
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
  const { description, parameters, strict } = value
  if (!isAbsent(parameters) && !isJsonObject(parameters)) {
    throw badField(`${param}.parameters`, parameters, 'a JSON schema object')
  }
  return {
    name: stringAt(value['name'], `${param}.name`),
    ...(typeof description === 'string' ? { description } : {}),
    parameters: parameters ?? NO_PARAMETERS,
    ...(typeof strict === 'boolean' ? { strict } : {}),
    native,
  }
}

const NO_PARAMETERS: JsonObject = { type: 'object', properties: {} }

/** A tool as it came where it is of this dialect; a function of another one as this one declares it. */
export function writeTool(tool: Tool): JsonObject {
  const { native } = tool
  if (native.dialect === 'openai' && native.value['type'] !== undefined) return native.value
  const { name, description, parameters, strict } = tool
  return { type: 'function', function: { name, description, parameters, strict } }
}

/** Undefined for what this library does not know; it leaves as it came. */
export function readToolChoice(body: JsonObject): ToolChoice | undefined {
  const chosen = body['tool_choice'] ?? body['function_call']
  if (chosen === 'auto' || chosen === 'none' || chosen === 'required') return { type: chosen }
  if (!isJsonObject(chosen)) {
    if (isAbsent(chosen)) return undefined
    throw badField('tool_choice', chosen, 'auto, none, required or an object')
  }
  const called = isJsonObject(chosen['function']) ? chosen['function'] : chosen
  return typeof called['name'] === 'string' ? { type: 'tool', name: called['name'] } : undefined
}

export function writeToolChoice(choice: ToolChoice): Json {
  return choice.type === 'tool' ? { type: 'function', function: { name: choice.name } } : choice.type
}
