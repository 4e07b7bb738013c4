/** The tools of a prompt in the responses format, with names and types that every vendor accepts. */
import { asArray, asString, isJsonObject, type JsonObject } from '../core/json.ts'
import type { Prompt, Tool } from '../core/prompt.ts'
import { NO_PARAMETERS } from './settings.ts'
import { DEFERRED_TOOLS } from './unsupported-fields.ts'

export interface OriginalTool {
  readonly name: string
  readonly namespace: string | undefined
  /** True if the argument is plain text instead of JSON. */
  readonly isCustom: boolean
}

export interface Toolset {
  readonly tools: Tool[]
  /** The original tools, by their names in `tools`. */
  readonly originalsByName: Map<string, OriginalTool>
  /** The first name in `tools` of each original name and namespace. */
  readonly namesByOriginal: Map<string, string>
  /** The last number appended to each shortened name. A search from the first number takes quadratic time. */
  readonly suffixes: Map<string, number>
  readonly ignoredFields: string[]
}

/** Maximum length of a tool name that every vendor accepts. */
const MAX_NAME_LENGTH = 64
export const CUSTOM_INPUT = 'input'

const toolsets = new WeakMap<Pick<Prompt, 'tools' | 'messages'>, Toolset>()

/** Cached per prompt, because both the request and its response need the tools. */
export function collectToolset(prompt: Pick<Prompt, 'tools' | 'messages'>): Toolset {
  const known = toolsets.get(prompt)
  if (known !== undefined) return known
  const toolset = readToolset(prompt)
  toolsets.set(prompt, toolset)
  return toolset
}

function readToolset({ tools, messages }: Pick<Prompt, 'tools' | 'messages'>): Toolset {
  const toolset: Toolset = {
    tools: [],
    originalsByName: new Map(),
    namesByOriginal: new Map(),
    suffixes: new Map(),
    ignoredFields: [],
  }
  for (const tool of tools) addTool(toolset, tool.native.value, undefined)
  for (const { parts } of messages) {
    for (const part of parts) {
      if (part.type !== 'opaque') continue
      for (const tool of asArray(part.native.value['tools'])) if (isJsonObject(tool)) addTool(toolset, tool, undefined)
    }
  }
  return toolset
}

function addTool(toolset: Toolset, value: JsonObject, namespace: string | undefined): void {
  const type = asString(value['type']) ?? ''
  const name = asString(value['name'])
  if (type === 'namespace' && name !== undefined) {
    for (const inner of asArray(value['tools'])) if (isJsonObject(inner)) addTool(toolset, inner, name)
    return
  }
  const isCustom = type === 'custom'
  if (name === undefined || (type !== 'function' && !isCustom)) {
    toolset.ignoredFields.push(`tools (${type.slice(0, MAX_NAME_LENGTH)})`)
    return
  }
  if (value['defer_loading'] === true) toolset.ignoredFields.push(DEFERRED_TOOLS)
  const flatName = findUnusedName(flattenName(name, namespace), toolset)
  const original = originalKey(name, namespace)
  toolset.originalsByName.set(flatName, { name, namespace, isCustom })
  if (!toolset.namesByOriginal.has(original)) toolset.namesByOriginal.set(original, flatName)
  toolset.tools.push({
    name: flatName,
    ...descriptionOf(value, isCustom),
    parameters: isCustom ? CUSTOM_PARAMETERS : isJsonObject(value['parameters']) ? value['parameters'] : NO_PARAMETERS,
    ...(!isCustom && typeof value['strict'] === 'boolean' ? { strict: value['strict'] } : {}),
    native: { dialect: 'responses', value },
  })
}

const CUSTOM_PARAMETERS: JsonObject = {
  type: 'object',
  properties: { [CUSTOM_INPUT]: { type: 'string' } },
  required: [CUSTOM_INPUT],
  additionalProperties: false,
}

/** Includes the grammar of a custom tool, because other vendors do not enforce it. */
function descriptionOf({ description, format }: JsonObject, isCustom: boolean): { readonly description?: string } {
  const text = asString(description)
  const grammar = isCustom && isJsonObject(format) ? asString(format['definition']) : undefined
  if (grammar === undefined) return text === undefined ? {} : { description: text }
  return { description: `${text ?? ''}\n\nGrammar of ${CUSTOM_INPUT}:\n${grammar}`.trim() }
}

function flattenName(name: string, namespace: string | undefined): string {
  const qualified = namespace === undefined ? name : `${namespace}__${name}`
  return qualified.replace(/[^\w-]/g, '_').slice(0, MAX_NAME_LENGTH)
}

/** In characters, including the underscore. */
const MAX_SUFFIX_LENGTH = 6

/** Long names that differ only in their last characters share the numbers, because the suffix replaces these characters. */
function findUnusedName(name: string, { originalsByName, suffixes }: Toolset): string {
  const start = name.slice(0, MAX_NAME_LENGTH - MAX_SUFFIX_LENGTH)
  let number = suffixes.get(start) ?? 1
  let unused = name
  while (originalsByName.has(unused)) {
    const suffix = `_${++number}`
    unused = name.slice(0, MAX_NAME_LENGTH - suffix.length) + suffix
    suffixes.set(start, number)
  }
  return unused
}

function originalKey(name: string, namespace: string | undefined): string {
  return JSON.stringify([namespace ?? null, name])
}

/** Returns the name of a tool in `tools`, or a valid name for a tool that is not declared. */
export function portableName(toolset: Toolset, name: string, namespace: string | undefined): string {
  return toolset.namesByOriginal.get(originalKey(name, namespace)) ?? flattenName(name, namespace)
}
