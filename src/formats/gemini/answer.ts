import { blockEvents, parseEvent, type OpenBlock } from '../stream-events.ts'
import type { AnswerEvent, Completion, Finish, Frame, Step, StepReader } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Part } from '../../core/prompt.ts'
import { generateCallId, idOf } from '../call-ids.ts'
import { readFinish, readGeminiUsage } from '../usage.ts'
import { streamFailure } from '../read-failure.ts'

/** Reads an upstream's answer loosely. A blocked prompt has no candidates: its answer is empty and filtered. */
export function readCompletion(body: JsonObject): Completion {
  const candidate = asObject(asArray(body['candidates'])[0])
  const isBlocked = isPromptBlocked(body)
  if (candidate === undefined && !isBlocked) {
    throw new GatewayError('upstream', 'The model provider sent no answer: its body has no candidates.')
  }
  const parts = partsOf(candidate).flatMap(readPart)
  const usage = readGeminiUsage(body['usageMetadata'])
  return {
    id: asString(body['responseId']) ?? '',
    model: asString(body['modelVersion']) ?? '',
    parts,
    finish: isBlocked ? 'filtered' : finishOf(candidate?.['finishReason'], parts.some(isCall)),
    ...(usage !== undefined && { usage }),
  }
}

function isPromptBlocked(body: JsonObject): boolean {
  return asString(asObject(body['promptFeedback'])?.['blockReason']) !== undefined
}

/** Returns the parts of a candidate or of its delta. */
export function partsOf(candidate: JsonObject | undefined): readonly JsonObject[] {
  return asArray(asObject(candidate?.['content'])?.['parts']).filter(isJsonObject)
}

/** Reads one part. Returns no part for content that only this vendor has, such as executed code. */
export function readPart(part: JsonObject): readonly Part[] {
  const call = asObject(part['functionCall'])
  if (call !== undefined) {
    const id = idOf(call['id']) ?? generateCallId('call')
    return [{ type: 'tool-call', id, name: asString(call['name']) ?? '', input: JSON.stringify(call['args'] ?? {}) }]
  }
  const text = asString(part['text'])
  if (text === undefined || text === '') return []
  return [{ type: part['thought'] === true ? 'thinking' : 'text', text }]
}

function isCall(part: Part): boolean {
  return part.type === 'tool-call'
}

/**
 * Returns the finish reason. Throws `upstream` for a tool call that the vendor cannot parse, because an empty answer
 * would hide the failure.
 */
function finishOf(reason: Json | undefined, hasCalls: boolean): Finish {
  if (reason === 'MALFORMED_FUNCTION_CALL') {
    throw new GatewayError('upstream', 'The model wrote a tool call that cannot be parsed. Retry the request.')
  }
  return readFinish(reason, hasCalls)
}

interface Reading extends OpenBlock {
  started: boolean
  finished: boolean
  calls: number
}

/**
 * Reads the events of `streamGenerateContent?alt=sse`. The stream has no end event. It is complete when it has a finish
 * reason.
 */
export function stepReader(): StepReader {
  const reading: Reading = { started: false, finished: false, open: undefined, calls: 0 }
  const read = (frame: Frame): Step => {
    const chunk = parseEvent(frame.data)
    const error = asObject(chunk['error'])
    if (error !== undefined) throw streamFailure(chunk)
    return { events: readChunk(reading, chunk) }
  }
  return Object.assign(read, { isWhole: () => reading.finished })
}

/** Reads a chunk. Usage is cumulative and present in each chunk. The end must be the last event. */
function readChunk(reading: Reading, chunk: JsonObject): readonly AnswerEvent[] {
  const events: AnswerEvent[] = []
  if (!reading.started) {
    reading.started = true
    const id = asString(chunk['responseId']) ?? ''
    events.push({ type: 'answer-start', id, model: asString(chunk['modelVersion']) ?? '' })
  }
  const candidate = asObject(asArray(chunk['candidates'])[0])
  for (const part of partsOf(candidate).flatMap(readPart)) events.push(...partEvents(reading, part))
  const usage = readGeminiUsage(chunk['usageMetadata'])
  if (usage !== undefined) events.push({ type: 'usage', usage })
  return [...events, ...endEvents(reading, chunk, candidate?.['finishReason'])]
}

function endEvents(reading: Reading, chunk: JsonObject, reason: JsonObject[string]): readonly AnswerEvent[] {
  const isBlocked = isPromptBlocked(chunk)
  if (reading.finished || (!isBlocked && typeof reason !== 'string')) return []
  reading.finished = true
  return [{ type: 'answer-end', finish: isBlocked ? 'filtered' : finishOf(reason, reading.calls > 0) }]
}

/** Returns the events of a part. A tool call is complete in one part. */
function partEvents(reading: Reading, part: Part): readonly AnswerEvent[] {
  if (part.type === 'tool-call') {
    const index = reading.calls++
    reading.open = undefined
    return [
      { type: 'tool-call-start', index, id: part.id, name: part.name },
      { type: 'tool-call-delta', index, input: part.input },
    ]
  }
  return part.type === 'text' || part.type === 'thinking' ? blockEvents(reading, part.type, part.text) : []
}
