import type { Json, JsonObject } from '../../core/json.ts'
import type { Prompt, Tool } from '../../core/prompt.ts'
import { arrayOf, callerComplaint, isAbsent, objectOf, stringAt } from './checks.ts'

/** The format names no bound. Agents with many MCP servers declare hundreds of tools. */
const MAX_TOOLS = 10_000

/** The tools of a message request. A tool with a `type` of its own is run or known by the vendor, and may have no name. */
export function readTools(value: Json | undefined): readonly Tool[] {
  if (isAbsent(value)) return []
  return arrayOf(value, 'tools', callerComplaint, MAX_TOOLS).map((item, index) => readTool(item, `tools[${index}]`))
}

function readTool(value: Json, path: string): Tool {
  const tool = objectOf(value, path, callerComplaint)
  const type = isAbsent(tool['type']) ? 'custom' : stringAt(tool, 'type', path, callerComplaint)
  const native = { dialect: 'anthropic', value: tool } as const
  if (type !== 'custom') return { name: typeof tool['name'] === 'string' ? tool['name'] : type, native }
  const name = stringAt(tool, 'name', path, callerComplaint)
  if (name === '') throw callerComplaint(`${path}.name`, name, 'a name')
  return {
    name,
    ...(typeof tool['description'] === 'string' ? { description: tool['description'] } : {}),
    parameters: objectOf(tool['input_schema'], `${path}.input_schema`, callerComplaint),
    ...(typeof tool['strict'] === 'boolean' ? { strict: tool['strict'] } : {}),
    native,
  }
}

/** A function as this format declares it: the whole schema is kept, and its type is said where it was not. */
export function writeTool(tool: Tool): JsonObject {
  if (tool.native.dialect === 'anthropic') return tool.native.value
  const schema: JsonObject =
    tool.parameters === undefined ? { type: 'object', properties: {} } : { type: 'object', ...tool.parameters }
  return {
    name: tool.name,
    ...(tool.description === undefined ? {} : { description: tool.description }),
    input_schema: schema,
    ...(tool.strict === true ? { strict: true } : {}),
  }
}

/**
 * Declarations for the tools that a conversation used and no longer declares: the format refuses tool blocks without
 * any declared tool. The caller of this function forbids their use by `tool_choice`.
 */
export function toolsOnceUsed(prompt: Prompt): readonly JsonObject[] {
  const names = new Set<string>()
  for (const message of prompt.messages) {
    for (const part of message.parts) if (part.type === 'tool-call') names.add(part.name)
  }
  return [...names].map((name) => ({ name, input_schema: { type: 'object', properties: {} } }))
}
