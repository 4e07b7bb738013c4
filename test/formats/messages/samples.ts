import type { SseEvent, StreamChunk } from '../../../src/core/completion.ts'
import { GatewayError } from '../../../src/core/errors.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../../src/formats/messages/upstream.ts'
import type { WriteContext, WriteMetrics } from '../../../src/formats/format.ts'

export const metrics: WriteMetrics = (kind) => (kind === 'summary' ? svcMetrics : { strategy: 'Passthrough' })

export const svcMetrics = { savings_percent: 25, original_cost: 0.004, your_cost: 0.003 }

export const smallBody: JsonObject = {
  model: 'claude/sonnet',
  max_tokens: 100,
  messages: [{ role: 'user', content: 'Hello' }],
}

export const context: WriteContext = { prompt: messagesClient.readPrompt(smallBody), createdSeconds: 1_760_000_000 }

/** Returns the failure that an action throws. */
export function failureOf(action: () => unknown): GatewayError {
  try {
    action()
  } catch (error) {
    if (GatewayError.is(error)) return error
    throw error
  }
  throw new Error('nothing was thrown')
}

/** Returns an SSE event as an upstream of the message format sends it. */
export function frame(data: JsonObject): SseEvent {
  return { event: String(data['type']), data: JSON.stringify(data) }
}

export function dataOf(events: readonly SseEvent[]): readonly JsonObject[] {
  return events.map((one) => JSON.parse(one.data) as JsonObject)
}

/** Writes all chunks and the end with one writer. */
export function writeChunks(chunks: readonly StreamChunk[]): readonly SseEvent[] {
  const writer = messagesClient.createStreamWriter(context)
  return [...chunks.flatMap((chunk) => writer.write(chunk)), ...writer.end(metrics)]
}

/** Reads all SSE events with one reader. */
export function readEvents(events: readonly SseEvent[]): readonly StreamChunk[] {
  const reader = messagesUpstream.createReader()
  return events.map((one) => reader(one))
}

export function bodyOf(text: string): JsonObject {
  return JSON.parse(text) as JsonObject
}
