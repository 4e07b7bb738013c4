import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { AnswerShape, Native, Settings, Tool, ToolChoice } from '../core/prompt.ts'
import { badField, isAbsent, stringAt } from './fields.ts'

/** Maximum of a limit on output tokens. No model generates more, so a greater value is a mistake. */
export const MAX_OUTPUT_TOKENS: number = 2 ** 31 - 1

/** Fields of a body and their new values; undefined removes a field. */
export type Changes = Record<string, Json | undefined>

/** Returns the settings without those that are undefined. */
export function definedSettings(settings: { readonly [K in keyof Settings]?: Settings[K] | undefined }): Settings {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined))
}

/** Reads the JSON schema that an answer must match. */
export function schemaShape({ name, schema, strict }: JsonObject): AnswerShape {
  return {
    type: 'schema',
    ...(typeof name === 'string' ? { name } : {}),
    schema: schema ?? {},
    ...(typeof strict === 'boolean' ? { strict } : {}),
  }
}

const NO_PARAMETERS: JsonObject = { type: 'object', properties: {} }

/** Reads the declaration of a function. `param` is its path in the body. */
export function readFunctionTool(declared: JsonObject, native: Native, param: string): Tool {
  const { description, parameters, strict } = declared
  if (!isAbsent(parameters) && !isJsonObject(parameters)) {
    throw badField(`${param}.parameters`, parameters, 'a JSON schema object')
  }
  return {
    name: stringAt(declared['name'], `${param}.name`),
    ...(typeof description === 'string' ? { description } : {}),
    parameters: parameters ?? NO_PARAMETERS,
    ...(typeof strict === 'boolean' ? { strict } : {}),
    native,
  }
}

/** Reads `tool_choice`. An object is passed to `nameOf`; undefined for a choice that the library does not know. */
export function readToolChoice(
  choice: Json | undefined,
  nameOf: (choice: JsonObject) => Json | undefined,
): ToolChoice | undefined {
  if (choice === 'auto' || choice === 'none' || choice === 'required') return { type: choice }
  if (isAbsent(choice)) return undefined
  if (!isJsonObject(choice)) throw badField('tool_choice', choice, 'auto, none, required or an object')
  const name = nameOf(choice)
  return typeof name === 'string' ? { type: 'tool', name } : undefined
}
