import { eventData, fileKindOf } from '../response-fields.ts'
import { asArray, isJsonObject, type JsonObject } from '../../core/json.ts'
import { setMembers } from '../../core/splice-json.ts'
import { contentErrorFor, type StreamWriter, urlOf, type WriteContext, type WriteMetrics } from '../format.ts'
import { requestsUsage, writeChatCall } from '../settings.ts'
import { DONE_DATA } from './response-reader.ts'
import type { StreamPart, FinishReason, SseEvent, StreamChunk, Completion } from '../../core/completion.ts'
import { NO_USAGE, type Usage } from '../../core/money.ts'
import { CHAT_USAGE_FIELDS, WIRE_REASONS, writeUsage } from '../usage.ts'
import type { ImagePart, Part, Prompt } from '../../core/prompt.ts'

/** Returns the name of a file that a message cannot contain. Audio has no media type there. */
export function omittedName(part: Part | StreamPart): string | undefined {
  const kind = part.type === 'image' ? undefined : fileKindOf(part)
  return kind && `message (${kind})`
}

export function createStreamWriter(context: WriteContext): StreamWriter {
  const { prompt } = context
  const wantsUsage = prompt.native.dialect === 'chat' && requestsUsage(prompt.native.value)
  const relay = createChunkRelay(prompt.settings.choices ?? 1)
  const builder = createChunkBuilder(context)
  const omitted = new Set<string>()
  return {
    write: (chunk) => {
      const { native } = chunk
      if (native?.dialect === 'chat') return relay.forward(chunk, native.event)
      for (const part of chunk.parts) {
        const name = omittedName(part)
        if (name !== undefined) omitted.add(name)
      }
      return chunk.parts.flatMap((part) => builder.write(part))
    },
    end: (writeMetrics) => {
      const held = relay.heldChunks()
      const finishChunk = held.finishChunk ?? builder.finishChunk()
      const usageChunk = held.usageChunk ?? (held.finishChunk === undefined ? builder.usageChunk() : undefined)
      const chunks = [...(finishChunk === undefined ? [] : [finishChunk]), ...held.lateChunks]
      const [first, ...others] = wantsUsage ? chunks : chunks.map(removeUsage)
      const metrics = { ...writeMetrics('details'), ...(omitted.size > 0 && { ignored: [...omitted] }) }
      return [
        ...(first === undefined ? [] : [addField(first, 'svc_metrics', metrics), ...others]),
        ...(wantsUsage && usageChunk !== undefined ? [usageChunk] : []),
        { data: DONE_DATA },
      ]
    },
  }
}

function createChunkBuilder({ prompt, createdSeconds: created }: WriteContext) {
  let commonFields: JsonObject | undefined
  let finish: FinishReason | undefined
  let usage: Partial<Usage> | undefined
  const toDeltas = createDeltaBuilder()

  const createEvent = (fields: JsonObject): SseEvent => ({ data: JSON.stringify({ ...commonFields, ...fields }) })
  const createChunk = (delta: JsonObject, reason?: FinishReason): SseEvent =>
    createEvent({ choices: [writeChoice(prompt, 'delta', delta, reason)] })
  const begin = (id: string, model: string): readonly SseEvent[] => {
    if (commonFields !== undefined) return []
    commonFields = { id, object: 'chat.completion.chunk', created, model }
    return [createChunk({ role: 'assistant', content: '' })]
  }

  return {
    write: (part: StreamPart): readonly SseEvent[] => {
      if (part.type === 'response-start') return begin(part.id, part.model)
      if (part.type === 'usage') usage = { ...usage, ...part.usage }
      if (part.type === 'response-end') finish = part.finish
      const added = toDeltas(part)
      return added.length === 0 ? [] : [...begin('', ''), ...added.map((delta) => createChunk(delta))]
    },
    finishChunk: (): SseEvent | undefined => (finish === undefined ? undefined : createChunk({}, finish)),
    usageChunk: (): SseEvent | undefined =>
      usage === undefined
        ? undefined
        : createEvent({ choices: [], usage: writeUsage({ ...NO_USAGE, ...usage }, CHAT_USAGE_FIELDS) }),
  }
}

/** A call without arguments gets `{}`, because clients parse the arguments as JSON. */
function createDeltaBuilder(): (part: StreamPart) => readonly JsonObject[] {
  const callsWithoutInput = new Set<number>()
  let imageCount = 0
  const argumentsDelta = (index: number, text: string): JsonObject => ({
    tool_calls: [{ index, function: { arguments: text } }],
  })
  return (part) => {
    switch (part.type) {
      case 'text-delta':
        return [{ content: part.text }]
      case 'thinking-delta':
        return part.text === undefined || part.text === '' ? [] : [{ reasoning_content: part.text }]
      case 'image':
        return [{ images: [writeImage(part, imageCount++)] }]
      case 'tool-call-start': {
        const { index, id, name } = part
        callsWithoutInput.add(index)
        return [{ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }]
      }
      case 'tool-call-delta':
        if (part.input === '') return []
        callsWithoutInput.delete(part.index)
        return [argumentsDelta(part.index, part.input)]
      case 'response-end': {
        const closing = [...callsWithoutInput].map((index) => argumentsDelta(index, '{}'))
        callsWithoutInput.clear()
        return closing
      }
      default:
        return []
    }
  }
}

/** Some vendors send a few chunks after the end of the response. Further chunks are dropped. */
const MAX_LATE_CHUNKS = 64

/** Holds the chunk that ends the last choice, and later chunks, until the bill is known. */
function createChunkRelay(choices: number) {
  let finishChunk: SseEvent | undefined
  let usageChunk: SseEvent | undefined
  let finishedChoices = 0
  let lateChunks: SseEvent[] = []

  const release = (): readonly SseEvent[] => {
    const released = finishChunk === undefined ? [] : [finishChunk, ...lateChunks]
    finishChunk = undefined
    lateChunks = []
    return released
  }

  return {
    forward: (chunk: StreamChunk, event: SseEvent): readonly SseEvent[] => {
      const kind = chunkKind(chunk, event, choices)
      if (kind === 'usage') usageChunk = event
      if (kind === 'done' || kind === 'usage') return []
      if (kind === 'finish') {
        const released = release()
        finishedChoices++
        finishChunk = event
        return released
      }
      if (finishChunk === undefined || finishedChoices < choices) return [...release(), event]
      if (lateChunks.length < MAX_LATE_CHUNKS) lateChunks.push(event)
      return []
    },
    heldChunks: () => ({ finishChunk, usageChunk, lateChunks }),
  }
}

function chunkKind(chunk: StreamChunk, event: SseEvent, choices: number): 'done' | 'usage' | 'finish' | 'content' {
  const hasPart = (type: string) => chunk.parts.some((part) => part.type === type)
  if (hasPart('done')) return 'done'
  if (hasPart('response-end')) return 'finish'
  if ((hasPart('usage') || chunk.parts.length === 0) && isUsageChunk(event)) return 'usage'
  return choices > 1 && choicesOf(event).some((choice) => typeof choice['finish_reason'] === 'string')
    ? 'finish'
    : 'content'
}

/** Returns true for a usage chunk, even if its counts are not numbers. */
function isUsageChunk(event: SseEvent): boolean {
  return event.data.includes('"usage"') && choicesOf(event).length === 0 && isJsonObject(eventData(event)['usage'])
}

function choicesOf(event: SseEvent): readonly JsonObject[] {
  return asArray(eventData(event)['choices']).filter(isJsonObject)
}

/** Removes the usage that some vendors add to the last chunk. The gateway requested the usage, not the caller. */
function removeUsage(event: SseEvent): SseEvent {
  if (!event.data.includes('"usage"')) return event
  const { usage } = eventData(event)
  return isJsonObject(usage) ? { ...event, data: setMembers(event.data, { usage: undefined }) } : event
}

function addField(event: SseEvent, name: string, value: JsonObject): SseEvent {
  const data = event.data.trimEnd()
  if (data.includes(`"${name}"`)) return { ...event, data: setMembers(data, { [name]: JSON.stringify(value) }) }
  return { ...event, data: `${data.slice(0, -1)},"${name}":${JSON.stringify(value)}}` }
}

export function writeCompletion(completion: Completion, _writeMetrics: WriteMetrics, context: WriteContext): string {
  const { native } = completion
  if (native?.dialect === 'chat') return native.text ?? JSON.stringify(native.value)
  return JSON.stringify({
    id: completion.id,
    object: 'chat.completion',
    created: context.createdSeconds,
    model: completion.model,
    choices: [writeChoice(context.prompt, 'message', writeMessage(completion.parts), completion.finish)],
    ...(completion.usage === undefined ? {} : { usage: writeUsage(completion.usage, CHAT_USAGE_FIELDS) }),
  })
}

function writeMessage(parts: readonly Part[]): JsonObject {
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  const thoughts = parts.flatMap((part) => (part.type === 'thinking' && part.redacted !== true ? [part.text] : []))
  const calls = parts.filter((part) => part.type === 'tool-call')
  const images = parts.filter((part) => part.type === 'image')
  const content = texts.length === 0 && calls.length > 0 ? null : texts.join('')
  return {
    role: 'assistant',
    content,
    refusal: null,
    ...(thoughts.length === 0 ? {} : { reasoning_content: thoughts.join('\n') }),
    ...(images.length === 0 ? {} : { images: images.map(writeImage) }),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map(writeChatCall) }),
  }
}

/** The field in which several vendors return images. */
function writeImage({ source }: ImagePart, index: number): JsonObject {
  return { type: 'image_url', index, image_url: { url: urlOf(source, 'images', contentErrorFor('the caller')) } }
}

function writeChoice(prompt: Prompt, field: 'delta' | 'message', value: JsonObject, finish?: FinishReason): JsonObject {
  const reason = finish === undefined ? null : WIRE_REASONS[finish].chat
  if (!usesDeprecatedFunctions(prompt)) return { index: 0, [field]: value, logprobs: null, finish_reason: reason }
  const deprecatedReason = finish === 'tool-call' ? 'function_call' : reason
  return { index: 0, [field]: withDeprecatedCall(value), logprobs: null, finish_reason: deprecatedReason }
}

/** Clients that declare the deprecated `functions` read `function_call` and ignore `tool_calls`. */
function usesDeprecatedFunctions({ native: { dialect, value } }: Prompt): boolean {
  return dialect === 'chat' && asArray(value['functions']).length > 0 && asArray(value['tools']).length === 0
}

function withDeprecatedCall({ tool_calls: calls, ...others }: JsonObject): JsonObject {
  const call = asArray(calls).filter(isJsonObject)[0]
  if (call === undefined || (call['index'] ?? 0) !== 0) return others
  return { ...others, function_call: call['function'] ?? null }
}
