import type { Frame } from '../../src/core/answer.ts'
import { createFrameReader } from '../../src/http/sse.ts'

/** The frames of an event stream. Throws `upstream` for an event of more than 1 MiB, and what the body throws. */
export async function* readFrames(body: AsyncIterable<Uint8Array>): AsyncGenerator<Frame, void, undefined> {
  const reader = createFrameReader()
  for await (const bytes of body) yield* reader.read(bytes)
  yield* reader.end()
}
