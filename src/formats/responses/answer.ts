import type { Completion } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { Native, Part } from '../../core/prompt.ts'
import { stepsOf } from '../../core/steps.ts'
import type { SvcMetrics, WriteContext } from '../format.ts'
import { writeMetrics } from '../chat/stream-writer.ts'
import { failureOfResponse, readFinish, readUsage } from './usage.ts'
import { fillCallIds } from './call-ids.ts'
import { readThought } from './items.ts'
import { responseWriter } from './stream-writer.ts'

/**
 * Reads an upstream's response loosely: only the fields that are used must be valid. Throws `upstream` when the body is
 * not a response.
 */
export function readCompletion(received: JsonObject, text?: string): Completion {
  const body = fillCallIds(received)
  if (body['status'] === 'failed' || asObject(body['error']) !== undefined) throw failureOfResponse(body)
  if (!Array.isArray(body['output'])) {
    throw new GatewayError('upstream', 'The model provider sent no answer: its body has no output.')
  }
  const items = asArray(body['output']).filter(isJsonObject)
  const usage = readUsage(body['usage'])
  const calls = items.some((item) => item['type'] === 'function_call')
  const refusal = items.some((item) =>
    asArray(item['content']).some((block) => asObject(block)?.['type'] === 'refusal'),
  )
  return {
    id: asString(body['id']) ?? '',
    model: asString(body['model']) ?? '',
    parts: items.flatMap(partsOf),
    finish: readFinish(body, { calls, refusal }),
    ...(usage === undefined ? {} : { usage }),
    native: { dialect: 'responses', value: body, ...(text === undefined || body !== received ? {} : { text }) },
  }
}

/** Returns the parts of one output item. */
function partsOf(item: JsonObject): readonly Part[] {
  const native: Native = { dialect: 'responses', value: item }
  switch (item['type']) {
    case 'message':
      return asArray(item['content']).flatMap((block) => wordsOf(asObject(block)))
    case 'function_call':
      return [
        {
          type: 'tool-call',
          id: asString(item['call_id']) ?? '',
          name: asString(item['name']) ?? '',
          input: asString(item['arguments']) ?? '',
          native,
        },
      ]
    case 'reasoning':
      return [readThought(item, native)]
    default:
      return [{ type: 'opaque', native }]
  }
}

function wordsOf(block: JsonObject | undefined): readonly Part[] {
  const text = asString(block?.['text']) ?? asString(block?.['refusal'])
  return block === undefined || text === undefined
    ? []
    : [{ type: 'text', text, native: { dialect: 'responses', value: block } }]
}

/**
 * Returns the JSON text of a response with its bill. A response of this format keeps all its fields. Any other is
 * written like the last event of its stream, so that whole and streamed answers are equal.
 */
export function writeCompletion(completion: Completion, metrics: SvcMetrics, context: WriteContext): string {
  const { native } = completion
  if (native?.dialect === 'responses') return JSON.stringify({ ...native.value, svc_metrics: writeMetrics(metrics) })
  const writer = responseWriter(context)
  for (const step of stepsOf(completion)) for (const event of step.events) writer.take(event)
  return JSON.stringify(writer.end(metrics).at(-1)?.['response'])
}
