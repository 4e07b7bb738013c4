import { asObject, asString, type JsonObject } from '../../core/json.ts'
import { withParts, type Message, type Part, type Prompt, type Settings } from '../../core/prompt.ts'
import { CUSTOM_INPUT, calledName, declaredTools, type DeclaredTools } from './called-tools.ts'
import { readContent } from './read-content.ts'

/** Items by which vendors report on the tools that they run, and that bring tools with them. */
const VENDOR_ITEMS: ReadonlySet<string> = new Set([
  'web_search_call',
  'file_search_call',
  'code_interpreter_call',
  'image_generation_call',
  'mcp_list_tools',
  'mcp_call',
  'mcp_approval_request',
  'mcp_approval_response',
  'tool_search_call',
  'tool_search_output',
])
const TOOL_ITEM = 'additional_tools'

/** A prompt in terms that every format has, and the names of what it lost. */
export interface PortablePrompt {
  readonly prompt: Prompt
  readonly ignored: readonly string[]
}

/**
 * A prompt of this format for a model of another one: custom tools and tools in namespaces become functions, what only
 * the vendor runs is left out.
 */
export function portableResponse(prompt: Prompt): PortablePrompt {
  const declared = declaredTools(prompt)
  const left = new Set(declared.left)
  const messages = prompt.messages.flatMap((message) => portableMessage(message, declared, left))
  const settings = portableSettings(prompt, declared)
  return { prompt: { ...prompt, messages, settings, tools: declared.tools }, ignored: [...left] }
}

function portableMessage(message: Message, declared: DeclaredTools, left: Set<string>): readonly Message[] {
  let isChanged = false
  const parts = message.parts.flatMap((part): readonly Part[] => {
    const portable = portablePart(part, declared, left)
    isChanged ||= portable !== part
    return portable === undefined ? [] : [portable]
  })
  if (!isChanged) return [message]
  const role = parts.some((part) => part.type === 'tool-result') ? 'tool' : message.role
  return parts.length === 0 ? [] : [withParts({ ...message, role }, parts)]
}

/** The part itself where other formats have it; undefined for one that is left out. */
function portablePart(part: Part, declared: DeclaredTools, left: Set<string>): Part | undefined {
  const value = part.native?.dialect === 'responses' ? part.native.value : {}
  const type = asString(value['type']) ?? ''
  if (part.type === 'tool-call') {
    const namespace = asString(value['namespace'])
    return namespace === undefined ? part : { ...withoutNative(part), name: calledName(declared, part.name, namespace) }
  }
  if (part.type !== 'opaque') return part
  if (type === 'custom_tool_call') return customCall(value, declared)
  if (type === 'custom_tool_call_output') return customResult(value)
  if (type === TOOL_ITEM) return undefined
  if (!VENDOR_ITEMS.has(type)) return part
  left.add(`input (${type})`)
  return undefined
}

function withoutNative<part extends Part>(part: part): part {
  const { native: _native, ...others } = part
  return others as part
}

function customCall(value: JsonObject, declared: DeclaredTools): Part {
  const name = asString(value['name']) ?? ''
  return {
    type: 'tool-call',
    id: asString(value['call_id']) ?? '',
    name: calledName(declared, name, asString(value['namespace'])),
    input: JSON.stringify({ [CUSTOM_INPUT]: asString(value['input']) ?? '' }),
  }
}

function customResult(value: JsonObject): Part {
  const content = readContent(value['output'], 'input.output')
  return { type: 'tool-result', callId: asString(value['call_id']) ?? '', content, failed: false }
}

/** A choice of one tool names it as the model knows it. */
function portableSettings({ settings, native }: Prompt, declared: DeclaredTools): Settings {
  const choice = asObject(native.value['tool_choice'])
  const isOneTool = choice?.['type'] === 'function' || choice?.['type'] === 'custom'
  const name = isOneTool ? asString(choice?.['name']) : undefined
  const user = settings.user ?? asString(asObject(native.value['client_metadata'])?.['session_id'])
  return {
    ...settings,
    ...(name !== undefined && {
      toolChoice: { type: 'tool' as const, name: calledName(declared, name, asString(choice?.['namespace'])) },
    }),
    ...(user !== undefined && { user }),
  }
}
