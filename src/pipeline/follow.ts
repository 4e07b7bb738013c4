import { writeFrame } from '../http/sse.ts'
import type { Format } from '../formats/format.ts'
import type { TextReader } from '../replay/recording.ts'
import { asFailure } from './refuse.ts'
import type { Parts } from './stages.ts'
import { bodyOf } from './stream-body.ts'

export interface Following {
  readonly reader: TextReader
  readonly format: Format
  readonly request: Request
  /** Of this reader's own request. */
  readonly requestId: string
  /** Called when the reader leaves. */
  readonly leave: () => void
}

/** A stream that is being generated for somebody else, as a body for one more reader. */
export function followBody(following: Following, parts: Pick<Parts, 'limits' | 'runtime'>): ReadableStream<Uint8Array> {
  const { format, request, leave } = following
  const texts = tellingFailure(following)
  const reader: TextReader = {
    next: texts.next,
    return: async () => {
      await texts.return()
      leave()
    },
  }
  return bodyOf(reader, {
    heartbeat: format.heartbeat,
    heartbeatMs: parts.limits.heartbeatMs,
    after: parts.runtime.after,
    now: parts.runtime.now,
    signal: request.signal,
  })
}

/** What cannot be followed any longer ends in an error event, once. */
function tellingFailure({ reader: texts, format, requestId }: Following): TextReader {
  let hasFailed = false
  return {
    next: async () => {
      if (hasFailed) return { value: undefined, done: true }
      try {
        return await texts.next()
      } catch (error) {
        hasFailed = true
        return { value: writeFrame(format.writeFailureFrame(asFailure(error), requestId)), done: false }
      }
    },
    return: texts.return,
  }
}
