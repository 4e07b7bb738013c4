import type { SseEvent } from '../../src/core/completion.ts'
import { createSseParser } from '../../src/http/sse.ts'

const MIB = 1024 * 1024

/**
 * Parses an event stream. Throws an `upstream` error for an event that is too large, and rethrows errors of the body.
 */
export async function* readSseEvents(
  body: AsyncIterable<Uint8Array>,
  maxEventChars = MIB,
): AsyncGenerator<SseEvent, void, undefined> {
  const reader = createSseParser(maxEventChars)
  for await (const bytes of body) yield* reader.read(bytes)
  yield* reader.end()
}
