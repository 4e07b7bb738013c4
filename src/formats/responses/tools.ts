import { asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Native, Tool, ToolChoice } from '../../core/prompt.ts'
import { arrayAt, badField, isAbsent, objectAt, stringAt } from '../fields.ts'

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
export function readToolChoice(choice: Json | undefined): ToolChoice | undefined {
  if (choice === 'auto' || choice === 'none' || choice === 'required') return { type: choice }
  if (isAbsent(choice)) return undefined
  if (!isJsonObject(choice)) throw badField('tool_choice', choice, 'auto, none, required or an object')
  const isFunction = choice['type'] === 'function' && typeof choice['name'] === 'string'
  return isFunction ? { type: 'tool', name: String(choice['name']) } : undefined
}

export function writeToolChoice(choice: ToolChoice | undefined): Json | undefined {
  return choice?.type === 'tool' ? { type: 'function', name: choice.name } : choice?.type
}
