import { keepTexts, keptText } from '../core/exact-json.ts'
import { decodeUtf8 } from '../core/http.ts'
import type { Model } from '../core/ports.ts'
import { withParts } from '../core/messages.ts'
import { type Message, type Part, type Prompt, type Settings, type UpstreamDialect } from '../core/prompt.ts'
import { mapSlices, runSteps, type Steps } from '../core/steps.ts'
import { sourceFormatOf } from './unsupported-fields.ts'
import { nameSet } from './parse-body.ts'
import { asObject, asString, type JsonObject } from '../core/json.ts'
import { pairResults, removeOrphans, removeToolSearch } from './tool-history.ts'
import { collectToolset, CUSTOM_INPUT, portableName, type Toolset } from './toolset.ts'

export interface PortableTarget {
  readonly dialect: UpstreamDialect
  readonly model: Pick<Model, 'rejectsSamplingParameters' | 'efforts'>
  /** True if unsupported content is omitted and reported. False if it is rejected. */
  readonly isLossy: boolean
}

export function portablePrompt(received: Prompt, target: PortableTarget): PortablePrompt {
  return runSteps(portableInSteps(received, target))
}

/** As `portablePrompt`, for long prompts. */
export function* portableInSteps(received: Prompt, target: PortableTarget): Steps<PortablePrompt> {
  const isResponses = received.native.dialect === 'responses'
  const converted = isResponses ? yield* portableResponsesPrompt(received) : { prompt: received, ignored: [] }
  yield
  const ignoredFields = [...converted.ignored]
  let { prompt } = converted
  if (target.model.rejectsSamplingParameters === true) prompt = removeSamplingParameters(prompt, ignoredFields)
  prompt = adaptEffort(prompt, target, ignoredFields)
  if (received.native.dialect === 'messages') prompt = removeToolSearch(withExactInputs(prompt), ignoredFields)
  yield
  if (target.isLossy) prompt = removeUnsupported(prompt, target.dialect, ignoredFields)
  yield
  if (isResponses) {
    const withoutOrphans = removeOrphans(prompt.messages, received, ignoredFields)
    yield
    prompt = { ...prompt, messages: pairResults(withoutOrphans) }
  }
  return { prompt, ignored: ignoredFields }
}

/** The messages format has the input of a call as an object, and the others as text. Keeps numbers as received. */
function withExactInputs(prompt: Prompt): Prompt {
  const { value, received } = prompt.native
  const hasCalls = prompt.messages.some(({ parts }) => parts.some(({ type }) => type === 'tool-call'))
  if (!hasCalls || received === undefined) return prompt
  keepTexts(value, received.text ?? decodeUtf8(received.bytes), ['messages', 'content', 'input'])
  return { ...prompt, messages: prompt.messages.map(withExactInput) }
}

function withExactInput(message: Message): Message {
  let isChanged = false
  const parts = message.parts.map((part) => {
    const input = part.type === 'tool-call' ? keptText(part.native?.value['input']) : undefined
    isChanged ||= input !== undefined
    return input === undefined ? part : { ...part, input }
  })
  return isChanged ? { ...message, parts } : message
}

const SAMPLING_PARAMETERS = { temperature: 'temperature', topP: 'top_p', topK: 'top_k' } as const

function removeSamplingParameters(prompt: Prompt, ignoredFields: string[]): Prompt {
  const { temperature, topP, topK, ...settings } = prompt.settings
  for (const [setting, value] of Object.entries({ temperature, topP, topK })) {
    if (value !== undefined) ignoredFields.push(SAMPLING_PARAMETERS[setting as keyof typeof SAMPLING_PARAMETERS])
  }
  return { ...prompt, settings }
}

/** In ascending order. */
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']

function adaptEffort(prompt: Prompt, { dialect, model }: PortableTarget, ignoredFields: string[]): Prompt {
  const { effort, ...settings } = prompt.settings
  if (effort === undefined) return prompt
  const sharesEffortScale = dialect !== 'messages' && prompt.native.dialect !== 'messages'
  if (model.efforts === undefined && sharesEffortScale) return prompt
  const supportedEffort = model.efforts?.includes(effort) === true ? effort : nearestEffort(effort, model.efforts ?? [])
  if (supportedEffort !== undefined) return { ...prompt, settings: { ...settings, effort: supportedEffort } }
  ignoredFields.push(sourceFormatOf(prompt).settingNames.effort)
  return { ...prompt, settings }
}

function nearestEffort(effort: string, supportedEfforts: readonly string[]): string | undefined {
  const rank = EFFORTS.indexOf(effort)
  if (rank === -1) return undefined
  const distance = (other: string): number => Math.abs(EFFORTS.indexOf(other) - rank)
  return supportedEfforts.filter((other) => EFFORTS.includes(other)).toSorted((a, b) => distance(a) - distance(b))[0]
}

function removeUnsupported(prompt: Prompt, dialect: UpstreamDialect, ignoredFields: string[]): Prompt {
  const { pathsIn, settingNames } = sourceFormatOf(prompt)
  const pathOf = pathsIn(prompt)
  const kept = prompt.messages.flatMap((message, index) => {
    const parts = portableParts(message.parts, dialect)
    if (parts === message.parts) return [{ message, index }]
    ignoredFields.push(pathOf(index))
    return parts.length === 0 ? [] : [{ message: withParts(message, parts), index }]
  })
  const tools = prompt.tools.filter(({ parameters }, index) => {
    if (parameters === undefined) ignoredFields.push(`tools[${index}]`)
    return parameters !== undefined
  })
  const { choices: _choices, stop, ...others } = prompt.settings
  const supportsStop = dialect !== 'responses' || stop === undefined || stop.length === 0
  if (!supportsStop) ignoredFields.push(settingNames.stop)
  const settings: Settings = { ...others, ...(supportsStop && stop !== undefined && { stop }) }
  const last = kept.at(-1)
  // Only the messages format supports a prefilled response.
  if (prompt.native.dialect === 'messages' && last?.message.role === 'assistant') {
    ignoredFields.push(pathOf(last.index))
    kept.pop()
  }
  return { ...prompt, messages: kept.map(({ message }) => message), settings, tools, isLossy: true }
}

/** Returns the same array if no part is omitted. */
function portableParts(parts: readonly Part[], dialect: UpstreamDialect): readonly Part[] {
  let isUnchanged = true
  const portable = parts.flatMap((part): readonly Part[] => {
    const isSupported = isPortable(part, dialect)
    isUnchanged &&= isSupported
    if (!isSupported || part.type !== 'tool-result') return isSupported ? [part] : []
    const content = portableParts(part.content, dialect)
    isUnchanged &&= content === part.content
    return [{ type: part.type, callId: part.callId, failed: part.failed, content }]
  })
  return isUnchanged ? parts : portable
}

function isPortable(part: Part, dialect: UpstreamDialect): boolean {
  switch (part.type) {
    case 'opaque':
      return part.native.value['type'] === 'refusal'
    case 'image':
      return part.source.type !== 'file' && !(part.source.type === 'url' && dialect === 'gemini')
    case 'document':
      return part.source.type !== 'file' && (part.source.type !== 'url' || (dialect !== 'chat' && dialect !== 'gemini'))
    default:
      return true
  }
}

const VENDOR_ITEMS: ReadonlySet<string> = nameSet(
  'web_search_call file_search_call code_interpreter_call image_generation_call mcp_list_tools mcp_call ' +
    'mcp_approval_request mcp_approval_response tool_search_call tool_search_output',
)

export interface PortablePrompt {
  readonly prompt: Prompt
  readonly ignored: readonly string[]
}

function* portableResponsesPrompt(prompt: Prompt): Steps<PortablePrompt> {
  const toolset = collectToolset(prompt)
  const ignoredFields = new Set(toolset.ignoredFields)
  yield
  const messages = yield* mapSlices(prompt.messages, (slice) =>
    slice.flatMap((message) => portableMessage(message, toolset, ignoredFields)),
  )
  const settings = portableSettings(prompt, toolset)
  return { prompt: { ...prompt, messages, settings, tools: toolset.tools }, ignored: [...ignoredFields] }
}

function portableMessage(message: Message, toolset: Toolset, ignoredFields: Set<string>): readonly Message[] {
  let isChanged = false
  const parts = message.parts.flatMap((part): readonly Part[] => {
    const portable = portablePart(part, toolset, ignoredFields)
    isChanged ||= portable !== part
    return portable === undefined ? [] : [portable]
  })
  if (!isChanged) return [message]
  const role = parts.some((part) => part.type === 'tool-result') ? 'tool' : message.role
  return parts.length === 0 ? [] : [withParts({ ...message, role }, parts)]
}

function portablePart(part: Part, toolset: Toolset, ignoredFields: Set<string>): Part | undefined {
  const value = part.native?.dialect === 'responses' ? part.native.value : {}
  const type = asString(value['type']) ?? ''
  if (type === 'custom_tool_call') return customCall(value, toolset)
  if (part.type === 'tool-call') {
    const namespace = asString(value['namespace'])
    if (namespace === undefined) return part
    const { native: _native, ...call } = part
    return { ...call, name: portableName(toolset, part.name, namespace) }
  }
  if (part.type !== 'opaque') return part
  if (type === 'additional_tools') return undefined
  if (!VENDOR_ITEMS.has(type)) return part
  ignoredFields.add(`input (${type})`)
  return undefined
}

function customCall(value: JsonObject, toolset: Toolset): Part {
  const name = asString(value['name']) ?? ''
  return {
    type: 'tool-call',
    id: asString(value['call_id']) ?? '',
    name: portableName(toolset, name, asString(value['namespace'])),
    input: JSON.stringify({ [CUSTOM_INPUT]: asString(value['input']) ?? '' }),
  }
}

function portableSettings({ settings, native }: Prompt, toolset: Toolset): Settings {
  const choice = asObject(native.value['tool_choice'])
  const isOneTool = choice?.['type'] === 'function' || choice?.['type'] === 'custom'
  const name = isOneTool ? asString(choice?.['name']) : undefined
  const user = settings.user ?? asString(asObject(native.value['client_metadata'])?.['session_id'])
  return {
    ...settings,
    ...(name !== undefined && {
      toolChoice: { type: 'tool' as const, name: portableName(toolset, name, asString(choice?.['namespace'])) },
    }),
    ...(user !== undefined && { user }),
  }
}
