import type { Frame } from '../../core/answer.ts'
import { asObject, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { StepWriter, WriteContext } from '../format.ts'
import { writeMetrics } from '../openai/stream-writer.ts'
import { failureFrame } from './failure.ts'
import type { ResponseEvent } from './output.ts'
import { LAST_EVENTS } from './stream-reader.ts'
import { responseWriter } from './write-response.ts'

/**
 * Writes named events, numbered in their order. Those of an upstream of this format leave word for word, save the last
 * one, which is held back to carry the bill.
 */
export function stepWriter(context: WriteContext): StepWriter {
  const writer = responseWriter(context)
  let sequence = 0
  let held: Frame | undefined
  const frameOf = (event: ResponseEvent): Frame => {
    const { type, ...fields } = event
    return { event: type, data: JSON.stringify({ type, sequence_number: sequence++, ...fields }) }
  }
  return {
    write: (step) => {
      const frame = step.native?.dialect === 'responses' ? step.native.frame : undefined
      if (frame === undefined) return step.events.flatMap((event) => writer.take(event)).map(frameOf)
      sequence++
      if (!LAST_EVENTS.has(frame.event ?? '')) return [frame]
      held = frame
      return []
    },
    passed: (events) => {
      for (let at = events.find('\n\n'); at !== -1; at = events.find('\n\n', at + 2)) sequence++
    },
    end: (metrics) => {
      if (held === undefined) return writer.end(metrics).map(frameOf)
      const data = parsed(held)
      const response = { ...asObject(data['response']), svc_metrics: writeMetrics(metrics) }
      return [{ ...held, data: JSON.stringify({ ...data, response }) }]
    },
    fail: (failure) => [failureFrame(failure, sequence)],
  }
}

function parsed(frame: Frame): JsonObject {
  const value: unknown = JSON.parse(frame.data)
  return isJsonObject(value) ? value : {}
}
