import { parseSseEvent } from '../answer-fields.ts'
import { asArray, asObject, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { SvcMetrics, StreamWriter, WriteContext } from '../format.ts'
import { asksForUsage, writeChatCall } from '../settings.ts'
import { LAST_DATA } from './answer-reader.ts'
import {
  type StreamPart,
  type FinishReason,
  type SseEvent,
  NO_USAGE,
  type StreamChunk,
  type Usage,
  type Completion,
} from '../../core/answer.ts'
import { writeFinish, CHAT_COUNTS, writeUsage } from '../usage.ts'
import type { Part } from '../../core/prompt.ts'

/**
 * Forwards chunks of this format unchanged, with two exceptions: the last chunk with a finish reason is held until the
 * bill is known, and the usage chunk is sent only if the caller requested usage.
 */
export function createStreamWriter(context: WriteContext): StreamWriter {
  const { prompt, created } = context
  const wantsUsage = prompt.native.dialect === 'openai' && asksForUsage(prompt.native.value)
  const relay = chunkRelay(prompt.settings.choices ?? 1)
  const maker = chunkMaker(created)
  return {
    write: (chunk) => {
      const { native } = chunk
      if (native?.dialect === 'openai') return relay.pass(chunk, native.event)
      return chunk.parts.flatMap((part) => maker.events(part))
    },
    end: (metrics) => {
      const delayed = relay.delayed()
      const closing = delayed === undefined ? maker.finish() : delayed
      const usage = relay.usage() ?? (delayed === undefined ? maker.usage() : undefined)
      const chunks = [...(closing === undefined ? [] : [closing]), ...relay.late()]
      const [last, ...late] = wantsUsage ? chunks : chunks.map(withoutUsage)
      return [
        ...(last === undefined ? [] : [withField(last, 'svc_metrics', writeMetrics(metrics)), ...late]),
        ...(wantsUsage && usage !== undefined ? [usage] : []),
        { data: LAST_DATA },
      ]
    },
  }
}

export function writeMetrics(metrics: SvcMetrics): JsonObject {
  return {
    original_tokens: metrics.originalTokens,
    optimized_tokens: metrics.optimizedTokens,
    tokens_saved: metrics.tokensSaved,
    reduction_pct: metrics.reductionPct,
    strategy: metrics.strategy,
    cache: metrics.cache,
    theoretical_cost: metrics.theoreticalCost,
    actual_cost: metrics.actualCost,
    billed_amount: metrics.billedAmount,
    savings_usd: metrics.savingsUsd,
    profit_margin: metrics.profitMargin,
  }
}

interface ChunkMaker {
  events(part: StreamPart): readonly SseEvent[]
  /** Returns undefined until the finish reason is known. */
  finish(): SseEvent | undefined
  /** Returns undefined until the usage is known. */
  usage(): SseEvent | undefined
}

/** Creates chunks with a common id, time and model. The first chunk contains the role. */
function chunkMaker(created: number): ChunkMaker {
  let head: JsonObject | undefined
  let finish: FinishReason | undefined
  let usage: Partial<Usage> | undefined
  const deltas = deltaMaker()

  const createEvent = (fields: JsonObject): SseEvent => ({ data: JSON.stringify({ ...head, ...fields }) })
  const chunk = (delta: JsonObject, reason: string | null = null): SseEvent =>
    createEvent({ choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }] })
  const begin = (id: string, model: string): readonly SseEvent[] => {
    if (head !== undefined) return []
    head = { id, object: 'chat.completion.chunk', created, model }
    return [chunk({ role: 'assistant', content: '' })]
  }

  return {
    events: (part) => {
      if (part.type === 'answer-start') return begin(part.id, part.model)
      if (part.type === 'usage') usage = { ...usage, ...part.usage }
      if (part.type === 'answer-end') finish = part.finish
      const added = deltas(part)
      return added.length === 0 ? [] : [...begin('', ''), ...added.map((delta) => chunk(delta))]
    },
    finish: () => (finish === undefined ? undefined : chunk({}, writeFinish(finish))),
    usage: () =>
      usage === undefined
        ? undefined
        : createEvent({ choices: [], usage: writeUsage({ ...NO_USAGE, ...usage }, CHAT_COUNTS) }),
  }
}

/**
 * Converts a stream part to deltas. A call without arguments gets `{}`, because clients parse the arguments as JSON.
 */
function deltaMaker(): (part: StreamPart) => readonly JsonObject[] {
  const silentCalls = new Set<number>()
  const argumentsOf = (index: number, text: string): JsonObject => ({
    tool_calls: [{ index, function: { arguments: text } }],
  })
  return (part) => {
    switch (part.type) {
      case 'text-delta':
        return [{ content: part.text }]
      case 'thinking-delta':
        return part.text === undefined || part.text === '' ? [] : [{ reasoning_content: part.text }]
      case 'tool-call-start': {
        const { index, id, name } = part
        silentCalls.add(index)
        return [{ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }]
      }
      case 'tool-call-delta':
        if (part.input === '') return []
        silentCalls.delete(part.index)
        return [argumentsOf(part.index, part.input)]
      case 'answer-end': {
        const closing = [...silentCalls].map((index) => argumentsOf(index, '{}'))
        silentCalls.clear()
        return closing
      }
      default:
        return []
    }
  }
}

/** Forwards chunks, but holds the chunk that ends the answer and all later chunks. */
interface ChunkRelay {
  pass(chunk: StreamChunk, event: SseEvent): readonly SseEvent[]
  /** Returns undefined until the answer ends. */
  delayed(): SseEvent | undefined
  late(): readonly SseEvent[]
  usage(): SseEvent | undefined
}

/** Maximum number of chunks after the end of the answer. Some vendors send a few such chunks. */
const MAX_LATE_CHUNKS = 64

/** Each of the requested `choices` ends with its own chunk. Only the last of these chunks is held. */
function chunkRelay(choices: number): ChunkRelay {
  let delayed: SseEvent | undefined
  let usage: SseEvent | undefined
  let finished = 0
  let late: SseEvent[] = []

  const release = (): readonly SseEvent[] => {
    const events = delayed === undefined ? [] : [delayed, ...late]
    delayed = undefined
    late = []
    return events
  }
  const delay = (event: SseEvent): readonly SseEvent[] => {
    const released = release()
    finished++
    delayed = event
    return released
  }
  const follow = (event: SseEvent): readonly SseEvent[] => {
    if (delayed === undefined || finished < choices) return [...release(), event]
    if (late.length < MAX_LATE_CHUNKS) late.push(event)
    return []
  }

  return {
    pass: (chunk, event) => {
      switch (kindOf(chunk, event, choices)) {
        case 'last':
          return []
        case 'usage':
          usage = event
          return []
        case 'finish':
          return delay(event)
        case 'content':
          return follow(event)
      }
    },
    delayed: () => delayed,
    late: () => late,
    usage: () => usage,
  }
}

/** Parses a chunk again only if it may end the answer. */
function kindOf(chunk: StreamChunk, event: SseEvent, choices: number): 'last' | 'usage' | 'finish' | 'content' {
  const has = (type: string) => chunk.parts.some((part) => part.type === type)
  if (has('done')) return 'last'
  if (has('answer-end')) return 'finish'
  if ((has('usage') || chunk.parts.length === 0) && isUsageChunk(event)) return 'usage'
  return choices > 1 && choicesOf(event).some(hasFinishReason) ? 'finish' : 'content'
}

/** Returns true for a usage chunk, even if its counts are not numbers. */
function isUsageChunk(event: SseEvent): boolean {
  return event.data.includes('"usage"') && choicesOf(event).length === 0 && isJsonObject(parseSseEvent(event)['usage'])
}

function choicesOf(event: SseEvent): readonly JsonObject[] {
  return asArray(parseSseEvent(event)['choices'])
    .map(asObject)
    .filter((choice) => choice !== undefined)
}

function hasFinishReason(choice: JsonObject): boolean {
  return typeof choice['finish_reason'] === 'string'
}

/** Removes the usage that some vendors add to the last chunk. The gateway requested it, not the caller. */
function withoutUsage(event: SseEvent): SseEvent {
  if (!event.data.includes('"usage"')) return event
  const { usage, ...others } = parseSseEvent(event)
  return isJsonObject(usage) ? { ...event, data: JSON.stringify(others) } : event
}

/** Adds a field without serializing the others again. */
function withField(event: SseEvent, name: string, value: JsonObject): SseEvent {
  const data = event.data.trimEnd()
  const hasOwn = data.includes(`"${name}"`)
  if (hasOwn) return { ...event, data: JSON.stringify({ ...parseSseEvent(event), [name]: value }) }
  return { ...event, data: `${data.slice(0, -1)},"${name}":${JSON.stringify(value)}}` }
}

/** Answers of this format are sent byte for byte unchanged. */
export function writeCompletion(completion: Completion, _metrics: SvcMetrics, context: WriteContext): string {
  const { native } = completion
  if (native?.dialect === 'openai') return native.text ?? JSON.stringify(native.value)
  return JSON.stringify({
    id: completion.id,
    object: 'chat.completion',
    created: context.created,
    model: completion.model,
    choices: [
      {
        index: 0,
        message: writeMessage(completion.parts),
        logprobs: null,
        finish_reason: writeFinish(completion.finish),
      },
    ],
    ...(completion.usage === undefined ? {} : { usage: writeUsage(completion.usage, CHAT_COUNTS) }),
  })
}

/** Reasoning goes into a separate field, which clients may ignore. */
function writeMessage(parts: readonly Part[]): JsonObject {
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  const thoughts = parts.flatMap((part) => (part.type === 'thinking' && part.redacted !== true ? [part.text] : []))
  const calls = parts.filter((part) => part.type === 'tool-call')
  const content = texts.length === 0 && calls.length > 0 ? null : texts.join('')
  return {
    role: 'assistant',
    content,
    refusal: null,
    ...(thoughts.length === 0 ? {} : { reasoning_content: thoughts.join('\n') }),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map(writeChatCall) }),
  }
}
