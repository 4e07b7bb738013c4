import { writeSseComment, writeSseEvent } from '../http/sse.ts'
import type { EventChunk, EventSink } from '../streams/event-buffer.ts'
import type { HeaderRecord } from '../core/http.ts'
import type { Exchange } from './exchange.ts'
import type { Services } from './services.ts'
import { asFailure } from './failures.ts'

export const STREAM_HEADERS: Readonly<HeaderRecord> = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
}

/**
 * Disconnects a reader that accepts no bytes for `timeouts.totalMs`. Otherwise, its buffers would stay in memory until it
 * disconnects.
 */
export function eventSinkOf(
  { sink, format, id }: Pick<Exchange, 'sink' | 'format' | 'id'>,
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
  // The timer is reset only when it fires, because resetting it on each event is slow.
  const check = (): void => {
    const silentMs = runtime.now() - writtenAt
    if (isBlocked && silentMs >= timeouts.totalMs) return sink.destroy()
    if (!isBlocked && silentMs >= heartbeatMs) {
      write(format.heartbeat === 'comment' ? writeSseComment('ping') : writeSseEvent(format.heartbeat))
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
      sink.write(writeSseEvent(format.writeFailureEvent(asFailure(error), id)))
      sink.end()
    },
    detach: () => cancel(),
  }
}

/** A stream that fails ends its response without a disconnect, so its reader must leave the request here. */
export function leaveOnFailure(sink: EventSink, leave: () => void): EventSink {
  return {
    ...sink,
    fail: (error) => {
      sink.fail(error)
      leave()
    },
  }
}
