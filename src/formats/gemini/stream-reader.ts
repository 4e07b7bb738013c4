import type { AnswerEvent, Frame, Step } from '../../core/answer.ts'
import type { StepReader } from '../../core/answer-source.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { Part } from '../../core/prompt.ts'
import { readFailure } from '../openai/failure.ts'
import { isPromptBlocked, partsOf, readFinish, readPart, readUsage } from './answer.ts'

interface Reading {
  started: boolean
  finished: boolean
  /** The block that the next piece of its kind continues. */
  open: 'text' | 'thinking' | undefined
  calls: number
}

/** Reads the events of `streamGenerateContent?alt=sse`. The stream has no last event: it is whole with its finish reason. */
export function stepReader(): StepReader {
  const reading: Reading = { started: false, finished: false, open: undefined, calls: 0 }
  const read = (frame: Frame): Step => {
    const chunk = parseChunk(frame.data)
    const error = asObject(chunk['error'])
    if (error !== undefined) throw streamFailure(error['code'], chunk)
    return { events: readChunk(reading, chunk) }
  }
  return Object.assign(read, { isWhole: () => reading.finished })
}

function parseChunk(data: string): JsonObject {
  try {
    const value: unknown = JSON.parse(data)
    if (isJsonObject(value)) return value
  } catch {
    // Reported below, like any other event that is not an object.
  }
  throw new GatewayError('upstream', 'The model provider sent a malformed event in its stream.')
}

function streamFailure(code: unknown, chunk: JsonObject): GatewayError {
  if (typeof code === 'number' && code >= 400 && code < 600) return readFailure(code, chunk)
  return new GatewayError('upstream', 'The model provider reported an error in the midst of its answer.')
}

/** Usage is cumulative and comes with each chunk; the end is the last event. */
function readChunk(reading: Reading, chunk: JsonObject): readonly AnswerEvent[] {
  const events: AnswerEvent[] = []
  if (!reading.started) {
    reading.started = true
    const id = asString(chunk['responseId']) ?? ''
    events.push({ type: 'answer-start', id, model: asString(chunk['modelVersion']) ?? '' })
  }
  const candidate = asObject(asArray(chunk['candidates'])[0])
  for (const part of partsOf(candidate).flatMap(readPart)) events.push(...partEvents(reading, part))
  const usage = readUsage(chunk['usageMetadata'])
  if (usage !== undefined) events.push({ type: 'usage', usage })
  return [...events, ...endEvents(reading, chunk, candidate?.['finishReason'])]
}

function endEvents(reading: Reading, chunk: JsonObject, reason: JsonObject[string]): readonly AnswerEvent[] {
  const isBlocked = isPromptBlocked(chunk)
  if (reading.finished || (!isBlocked && typeof reason !== 'string')) return []
  reading.finished = true
  return [{ type: 'answer-end', finish: isBlocked ? 'filtered' : readFinish(reason, reading.calls > 0) }]
}

/** A tool call comes whole, in one part. */
function partEvents(reading: Reading, part: Part): readonly AnswerEvent[] {
  if (part.type === 'tool-call') {
    const index = reading.calls++
    reading.open = undefined
    return [
      { type: 'tool-call-start', index, id: part.id, name: part.name },
      { type: 'tool-call-delta', index, input: part.input },
    ]
  }
  if (part.type !== 'text' && part.type !== 'thinking') return []
  const isOpen = reading.open === part.type
  reading.open = part.type
  const delta: AnswerEvent =
    part.type === 'text' ? { type: 'text-delta', text: part.text } : { type: 'thinking-delta', text: part.text }
  return isOpen ? [delta] : [{ type: `${part.type}-start` }, delta]
}
