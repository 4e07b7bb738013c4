import type { ResponseSink } from '../core/http.ts'
import { comment, writeFrame } from '../http/sse.ts'
import type { ClientFormat } from '../formats/format.ts'
import type { EventChunk, EventSink } from '../replay/event-buffer.ts'
import { asFailure } from './fail.ts'
import type { Services } from './services.ts'

/** One reader of an event stream. */
export interface EventReader {
  readonly sink: ResponseSink
  readonly format: ClientFormat
  /** Of this reader's own request. */
  readonly id: string
}

/**
 * Writes events into a response, and a heartbeat after each interval in which nothing else was written. A reader that takes
 * nothing for `timeouts.total` is disconnected: what waits for it must not be held for ever.
 */
export function eventSinkOf(
  { sink, format, id }: EventReader,
  { limits, runtime, timeouts }: Pick<Services, 'limits' | 'runtime' | 'timeouts'>,
): EventSink {
  const { heartbeatMs } = limits
  let writtenAt = runtime.now()
  let isBlocked = false
  let cancel: () => void = () => {}
  const write = (chunk: EventChunk): boolean => {
    writtenAt = runtime.now()
    isBlocked = !sink.write(chunk)
    return !isBlocked
  }
  // Re-armed only when it fires, not at every event.
  const check = (): void => {
    const silentMs = runtime.now() - writtenAt
    if (isBlocked && silentMs >= timeouts.total) return sink.destroy()
    if (!isBlocked && silentMs >= heartbeatMs) {
      write(format.heartbeat === 'comment' ? comment('ping') : writeFrame(format.heartbeat))
    }
    arm(silentMs < heartbeatMs ? heartbeatMs - silentMs : heartbeatMs)
  }
  const arm = (ms: number): void => {
    cancel = runtime.after(ms, check, { isBackground: true })
  }
  arm(heartbeatMs)
  return {
    write,
    onDrain: (listener) =>
      sink.onDrain(() => {
        isBlocked = false
        listener()
      }),
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
