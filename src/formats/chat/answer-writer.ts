import { parseFrame } from '../answer-fields.ts'
import { asArray, asObject, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { SvcMetrics, StepWriter, WriteContext } from '../format.ts'
import { asksForUsage, writeChatCall } from '../settings.ts'
import { LAST_DATA } from './answer-reader.ts'
import {
  type AnswerEvent,
  type Finish,
  type Frame,
  NO_USAGE,
  type Step,
  type Usage,
  type Completion,
} from '../../core/answer.ts'
import { writeFinish, CHAT_COUNTS, writeUsage } from '../usage.ts'
import type { Part } from '../../core/prompt.ts'

/**
 * Forwards chunks of this format unchanged, with two exceptions: the last chunk with a finish reason is delayed until
 * the bill is known, and the usage chunk is sent only if the caller requested usage.
 */
export function stepWriter(context: WriteContext): StepWriter {
  const { prompt, created } = context
  const wantsUsage = prompt.native.dialect === 'openai' && asksForUsage(prompt.native.value)
  const own = chunkRelay(prompt.settings.choices ?? 1)
  const maker = chunkMaker(created)
  return {
    write: (step) => {
      const { native } = step
      if (native?.dialect === 'openai') return own.pass(step, native.frame)
      return step.events.flatMap((event) => maker.frames(event))
    },
    end: (metrics) => {
      const delayed = own.delayed()
      const closing = delayed === undefined ? maker.finish() : delayed
      const usage = own.usage() ?? (delayed === undefined ? maker.usage() : undefined)
      const chunks = [...(closing === undefined ? [] : [closing]), ...own.late()]
      const [last, ...late] = wantsUsage ? chunks : chunks.map(withoutUsage)
      return [
        ...(last === undefined ? [] : [withField(last, 'svc_metrics', writeMetrics(metrics)), ...late]),
        ...(wantsUsage && usage !== undefined ? [usage] : []),
        { data: LAST_DATA },
      ]
    },
  }
}

/** Returns the billing fields for the chat and responses formats. */
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
  frames(event: AnswerEvent): readonly Frame[]
  /** Returns undefined until the finish reason is known. */
  finish(): Frame | undefined
  /** Returns undefined until the usage is known. */
  usage(): Frame | undefined
}

/** Creates chunks with a common id, time and model. The first chunk contains the role. */
function chunkMaker(created: number): ChunkMaker {
  let head: JsonObject | undefined
  let finish: Finish | undefined
  let usage: Partial<Usage> | undefined
  const deltas = deltaMaker()

  const frame = (fields: JsonObject): Frame => ({ data: JSON.stringify({ ...head, ...fields }) })
  const chunk = (delta: JsonObject, reason: string | null = null): Frame =>
    frame({ choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }] })
  const begin = (id: string, model: string): readonly Frame[] => {
    if (head !== undefined) return []
    head = { id, object: 'chat.completion.chunk', created, model }
    return [chunk({ role: 'assistant', content: '' })]
  }

  return {
    frames: (event) => {
      if (event.type === 'answer-start') return begin(event.id, event.model)
      if (event.type === 'usage') usage = { ...usage, ...event.usage }
      if (event.type === 'answer-end') finish = event.finish
      const added = deltas(event)
      return added.length === 0 ? [] : [...begin('', ''), ...added.map((delta) => chunk(delta))]
    },
    finish: () => (finish === undefined ? undefined : chunk({}, writeFinish(finish))),
    usage: () =>
      usage === undefined
        ? undefined
        : frame({ choices: [], usage: writeUsage({ ...NO_USAGE, ...usage }, CHAT_COUNTS) }),
  }
}

/**
 * Returns a function that converts an event to deltas. A call without arguments gets `{}`, because clients parse the
 * arguments as JSON.
 */
function deltaMaker(): (event: AnswerEvent) => readonly JsonObject[] {
  const silentCalls = new Set<number>()
  const argumentsOf = (index: number, text: string): JsonObject => ({
    tool_calls: [{ index, function: { arguments: text } }],
  })
  return (event) => {
    switch (event.type) {
      case 'text-delta':
        return [{ content: event.text }]
      case 'thinking-delta':
        return event.text === undefined || event.text === '' ? [] : [{ reasoning_content: event.text }]
      case 'tool-call-start': {
        const { index, id, name } = event
        silentCalls.add(index)
        return [{ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }]
      }
      case 'tool-call-delta':
        if (event.input === '') return []
        silentCalls.delete(event.index)
        return [argumentsOf(event.index, event.input)]
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

/** Forwards chunks, and delays the chunk that ends the answer and the chunks after it. */
interface ChunkRelay {
  pass(step: Step, frame: Frame): readonly Frame[]
  /** Returns the chunk that ends the answer. Returns undefined before this chunk arrives. */
  delayed(): Frame | undefined
  late(): readonly Frame[]
  usage(): Frame | undefined
}

/** Maximum number of chunks after the end of the answer. Some vendors send a few such chunks. */
const MAX_LATE_CHUNKS = 64

/** Each of the requested `choices` ends with a separate chunk. Only the last of these chunks is delayed. */
function chunkRelay(choices: number): ChunkRelay {
  let delayed: Frame | undefined
  let usage: Frame | undefined
  let finished = 0
  let late: Frame[] = []

  const release = (): readonly Frame[] => {
    const frames = delayed === undefined ? [] : [delayed, ...late]
    delayed = undefined
    late = []
    return frames
  }
  const delay = (frame: Frame): readonly Frame[] => {
    const freed = release()
    finished++
    delayed = frame
    return freed
  }
  const follow = (frame: Frame): readonly Frame[] => {
    if (delayed === undefined || finished < choices) return [...release(), frame]
    if (late.length < MAX_LATE_CHUNKS) late.push(frame)
    return []
  }

  return {
    pass: (step, frame) => {
      switch (kindOf(step, frame, choices)) {
        case 'last':
          return []
        case 'usage':
          usage = frame
          return []
        case 'finish':
          return delay(frame)
        case 'content':
          return follow(frame)
      }
    },
    delayed: () => delayed,
    late: () => late,
    usage: () => usage,
  }
}

/** Parses a chunk again only if its events are relevant to the end of the answer. */
function kindOf(step: Step, frame: Frame, choices: number): 'last' | 'usage' | 'finish' | 'content' {
  const has = (type: string) => step.events.some((event) => event.type === type)
  if (has('done')) return 'last'
  if (has('answer-end')) return 'finish'
  if ((has('usage') || step.events.length === 0) && isUsageChunk(frame)) return 'usage'
  return choices > 1 && choicesOf(frame).some(endsHere) ? 'finish' : 'content'
}

/** Returns true for a usage chunk, even if its counts are not numbers. */
function isUsageChunk(frame: Frame): boolean {
  return frame.data.includes('"usage"') && choicesOf(frame).length === 0 && isJsonObject(parseFrame(frame)['usage'])
}

function choicesOf(frame: Frame): readonly JsonObject[] {
  return asArray(parseFrame(frame)['choices'])
    .map(asObject)
    .filter((choice) => choice !== undefined)
}

function endsHere(choice: JsonObject): boolean {
  return typeof choice['finish_reason'] === 'string'
}

/** Removes the usage field that some vendors add to the last chunk. The gateway requested the usage, not the caller. */
function withoutUsage(frame: Frame): Frame {
  if (!frame.data.includes('"usage"')) return frame
  const { usage, ...others } = parseFrame(frame)
  return isJsonObject(usage) ? { ...frame, data: JSON.stringify(others) } : frame
}

/** Returns the frame with an additional field. Does not serialize the other fields again. */
function withField(frame: Frame, name: string, value: JsonObject): Frame {
  const data = frame.data.trimEnd()
  const hasOwn = data.includes(`"${name}"`)
  if (hasOwn) return { ...frame, data: JSON.stringify({ ...parseFrame(frame), [name]: value }) }
  return { ...frame, data: `${data.slice(0, -1)},"${name}":${JSON.stringify(value)}}` }
}

/** Returns the JSON of an answer. Answers of this format are sent byte for byte unchanged. */
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

/** Reasoning is written to a separate field, which clients may ignore. */
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
