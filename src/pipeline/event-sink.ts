import type { ResponseSink } from '../core/http.ts'
import { comment, writeFrame } from '../http/sse.ts'
import type { Format } from '../formats/format.ts'
import type { EventSink } from '../replay/event-buffer.ts'
import { asFailure } from './fail.ts'
import type { Services } from './services.ts'

/** One reader of an event stream. */
export interface EventReader {
  readonly sink: ResponseSink
  readonly format: Format
  /** Of this reader's own request. */
  readonly id: string
}

/** Writes events into a response, and a heartbeat after each interval in which nothing else was written. */
export function eventSinkOf(
  { sink, format, id }: EventReader,
  { limits, runtime }: Pick<Services, 'limits' | 'runtime'>,
): EventSink {
  const { heartbeatMs } = limits
  let writtenAt = runtime.now()
  let cancel: () => void = () => {}
  // Re-armed only when it fires, not at every event.
  const arm = (ms: number): void => {
    const check = (): void => {
      const left = writtenAt + heartbeatMs - runtime.now()
      if (left <= 0) {
        sink.write(format.heartbeat === 'comment' ? comment('ping') : writeFrame(format.heartbeat))
        writtenAt = runtime.now()
      }
      arm(left <= 0 ? heartbeatMs : left)
    }
    cancel = runtime.after(ms, check, { isBackground: true })
  }
  arm(heartbeatMs)
  return {
    write: (chunk) => {
      writtenAt = runtime.now()
      return sink.write(chunk)
    },
    onDrain: (listener) => sink.onDrain(listener),
    end: () => {
      cancel()
      sink.end()
    },
    fail: (error) => {
      cancel()
      sink.write(writeFrame(format.writeFailureFrame(asFailure(error), id)))
      sink.end()
    },
    leave: () => cancel(),
  }
}
