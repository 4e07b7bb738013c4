import type { SseEvent } from '../../src/core/answer.ts'
import { createSseParser } from '../../src/http/sse.ts'

const MIB = 1024 * 1024

/** The frames of an event stream. Throws `upstream` for an event that is too large, and what the body throws. */
export async function* readSseEvents(
  body: AsyncIterable<Uint8Array>,
  maxEventChars = MIB,
): AsyncGenerator<SseEvent, void, undefined> {
  const reader = createSseParser(maxEventChars)
  for await (const bytes of body) yield* reader.read(bytes)
  yield* reader.end()
}
