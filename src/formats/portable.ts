import type { Model } from '../core/model.ts'
import { withParts, type Message, type Part, type Prompt, type Settings, type UpstreamDialect } from '../core/prompt.ts'
import { sourceOf } from './unsupported-fields.ts'
import { portableResponse, type PortablePrompt } from './responses/portable-prompt.ts'

/** The destination of a prompt that must be translated. */
export interface PortableTarget {
  readonly dialect: UpstreamDialect
  readonly model: Pick<Model, 'refusesSamplers' | 'efforts'>
  /** True if content that the target's format cannot express is omitted and reported instead of refused. */
  readonly isLossy: boolean
}

/** Prepares a prompt for another format. Makes the changes that depend on the target model or on the caller. */
export function portablePrompt(received: Prompt, target: PortableTarget): PortablePrompt {
  const own = received.native.dialect === 'responses' ? portableResponse(received) : { prompt: received, ignored: [] }
  const ignored = [...own.ignored]
  let { prompt } = own
  if (target.model.refusesSamplers === true) prompt = withoutSamplers(prompt, ignored)
  prompt = withKnownEffort(prompt, target, ignored)
  if (target.isLossy) prompt = withoutUnsupported(prompt, target.dialect, ignored)
  return { prompt, ignored }
}

/** Names of samplers, equal in all formats. */
const SAMPLERS = { temperature: 'temperature', topP: 'top_p', topK: 'top_k' } as const

function withoutSamplers(prompt: Prompt, ignored: string[]): Prompt {
  const { temperature, topP, topK, ...settings } = prompt.settings
  for (const [setting, value] of Object.entries({ temperature, topP, topK })) {
    if (value !== undefined) ignored.push(SAMPLERS[setting as keyof typeof SAMPLERS])
  }
  return { ...prompt, settings }
}

/** Reasoning efforts of all vendors, in ascending order. */
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']

/** Replaces the effort with the nearest effort that the target model supports. */
function withKnownEffort(prompt: Prompt, { dialect, model }: PortableTarget, ignored: string[]): Prompt {
  const { effort, ...settings } = prompt.settings
  if (effort === undefined) return prompt
  const isShared = dialect !== 'anthropic' && prompt.native.dialect !== 'anthropic'
  if (model.efforts === undefined && isShared) return prompt
  const known = model.efforts?.includes(effort) === true ? effort : nearestEffort(effort, model.efforts ?? [])
  if (known !== undefined) return { ...prompt, settings: { ...settings, effort: known } }
  ignored.push(sourceOf(prompt).names.effort)
  return { ...prompt, settings }
}

function nearestEffort(effort: string, known: readonly string[]): string | undefined {
  const wanted = EFFORTS.indexOf(effort)
  if (wanted === -1) return undefined
  const away = (word: string): number => Math.abs(EFFORTS.indexOf(word) - wanted)
  return known.filter((word) => EFFORTS.includes(word)).toSorted((a, b) => away(a) - away(b))[0]
}

/** Omits parts and settings that the target format cannot express. The writers omit body fields. */
function withoutUnsupported(prompt: Prompt, dialect: UpstreamDialect, ignored: string[]): Prompt {
  const { pathOf, names } = sourceOf(prompt)
  const messages = prompt.messages.flatMap((message, index) => {
    const parts = portableParts(message.parts, dialect)
    if (parts === message.parts) return [message]
    ignored.push(pathOf(prompt, index))
    return parts.length === 0 ? [] : [withParts(message, parts)]
  })
  const tools = prompt.tools.filter(({ parameters }, index) => {
    if (parameters === undefined) ignored.push(`tools[${index}]`)
    return parameters !== undefined
  })
  const { choices: _choices, stop, ...others } = prompt.settings
  const isStopKnown = dialect !== 'responses' || stop === undefined || stop.length === 0
  if (!isStopKnown) ignored.push(names.stop)
  const settings: Settings = { ...others, ...(isStopKnown && stop !== undefined && { stop }) }
  return { ...prompt, messages: withoutBeginning(messages, prompt, ignored), settings, tools, isLossy: true }
}

/** Removes the prefilled start of an answer, which only the message format supports. */
function withoutBeginning(messages: readonly Message[], prompt: Prompt, ignored: string[]): readonly Message[] {
  if (prompt.native.dialect !== 'anthropic' || messages.at(-1)?.role !== 'assistant') return messages
  ignored.push(sourceOf(prompt).pathOf(prompt, messages.length - 1))
  return messages.slice(0, -1)
}

/** Returns the parts that the target format supports. Returns the same array if no part is omitted. */
function portableParts(parts: readonly Part[], dialect: UpstreamDialect): readonly Part[] {
  let isWhole = true
  const portable = parts.flatMap((part): readonly Part[] => {
    const isSupported = isPortable(part, dialect)
    isWhole &&= isSupported
    if (!isSupported || part.type !== 'tool-result') return isSupported ? [part] : []
    const content = portableParts(part.content, dialect)
    isWhole &&= content === part.content
    return [{ type: part.type, callId: part.callId, failed: part.failed, content }]
  })
  return isWhole ? parts : portable
}

/** Returns false for content that only its vendor can resolve. */
function isPortable(part: Part, dialect: UpstreamDialect): boolean {
  switch (part.type) {
    case 'opaque':
      return part.native.value['type'] === 'refusal'
    case 'image':
      return part.source.type !== 'file' && !(part.source.type === 'url' && dialect === 'gemini')
    case 'document':
      return (
        part.source.type !== 'file' && !(part.source.type === 'url' && (dialect === 'openai' || dialect === 'gemini'))
      )
    default:
      return true
  }
}
