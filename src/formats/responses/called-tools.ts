import { asArray, asString, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { Prompt, Tool } from '../../core/prompt.ts'

/** A tool of this format, under one name for models of other formats. */
export interface CalledTool {
  readonly name: string
  readonly namespace: string | undefined
  /** Called with one text instead of JSON arguments. */
  readonly isCustom: boolean
}

/** The tools that a prompt declares, as other formats have them. */
export interface DeclaredTools {
  readonly tools: readonly Tool[]
  /** By the names in `tools`. */
  readonly called: ReadonlyMap<string, CalledTool>
  /** The paths of tools that the vendor runs, or that only its own models know. */
  readonly left: readonly string[]
}

/** The longest name of a tool that every vendor takes. */
const MAX_NAME = 64
/** The argument of a custom tool. */
export const CUSTOM_INPUT = 'input'

/** Reads the declarations of `tools` and of items that bring tools with them, those in namespaces under flat names. */
export function declaredTools({ tools, messages }: Pick<Prompt, 'tools' | 'messages'>): DeclaredTools {
  const declared: Declaring = { tools: [], called: new Map(), left: [] }
  for (const tool of tools) declare(declared, tool.native.value, undefined)
  const items = messages.flatMap(({ parts }) => parts.filter((part) => part.type === 'opaque'))
  for (const item of items) {
    for (const tool of asArray(item.native.value['tools'])) if (isJsonObject(tool)) declare(declared, tool, undefined)
  }
  return declared
}

interface Declaring {
  readonly tools: Tool[]
  readonly called: Map<string, CalledTool>
  readonly left: string[]
}

function declare(declared: Declaring, value: JsonObject, namespace: string | undefined): void {
  const type = asString(value['type']) ?? ''
  const name = asString(value['name'])
  if (type === 'namespace' && name !== undefined) {
    for (const inner of asArray(value['tools'])) if (isJsonObject(inner)) declare(declared, inner, name)
    return
  }
  const isCustom = type === 'custom'
  if (name === undefined || (type !== 'function' && !isCustom)) {
    declared.left.push(`tools (${type.slice(0, MAX_NAME)})`)
    return
  }
  const flat = unusedName(flatName(name, namespace), declared.called)
  declared.called.set(flat, { name, namespace, isCustom })
  declared.tools.push({
    name: flat,
    ...descriptionOf(value, isCustom),
    parameters: isCustom ? CUSTOM_PARAMETERS : isJsonObject(value['parameters']) ? value['parameters'] : NO_PARAMETERS,
    ...(!isCustom && typeof value['strict'] === 'boolean' ? { strict: value['strict'] } : {}),
    native: { dialect: 'responses', value },
  })
}

const NO_PARAMETERS: JsonObject = { type: 'object', properties: {} }
const CUSTOM_PARAMETERS: JsonObject = {
  type: 'object',
  properties: { [CUSTOM_INPUT]: { type: 'string' } },
  required: [CUSTOM_INPUT],
  additionalProperties: false,
}

/** The grammar of a custom tool binds no other vendor, so it becomes a part of the description. */
function descriptionOf({ description, format }: JsonObject, isCustom: boolean): { readonly description?: string } {
  const words = asString(description)
  const grammar = isCustom && isJsonObject(format) ? asString(format['definition']) : undefined
  if (grammar === undefined) return words === undefined ? {} : { description: words }
  return { description: `${words ?? ''}\n\nGrammar of ${CUSTOM_INPUT}:\n${grammar}`.trim() }
}

/** The name of a tool by which models of other formats call it. */
export function flatName(name: string, namespace: string | undefined): string {
  const whole = namespace === undefined ? name : `${namespace}__${name}`
  return whole.replace(/[^\w-]/g, '_').slice(0, MAX_NAME)
}

function unusedName(name: string, used: ReadonlyMap<string, unknown>): string {
  let unused = name
  for (let number = 2; used.has(unused); number++) {
    const suffix = `_${number}`
    unused = name.slice(0, MAX_NAME - suffix.length) + suffix
  }
  return unused
}

/** The name in `called` of a tool that an item names; a tool that is no longer declared gets the name it had. */
export function calledName(declared: DeclaredTools, name: string, namespace: string | undefined): string {
  for (const [flat, tool] of declared.called) if (tool.name === name && tool.namespace === namespace) return flat
  return flatName(name, namespace)
}
