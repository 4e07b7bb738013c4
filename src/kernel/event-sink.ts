import { writeSseComment, writeSseEvent } from '../http/sse.ts'
import type { EventChunk, EventSink } from '../streams/event-buffer.ts'
import type { HeaderRecord } from '../core/http.ts'
import { destroyBrokenSink } from './broken-sink.ts'
import type { Exchange } from './exchange.ts'
import type { Services } from './services.ts'
import { asFailure } from './failures.ts'

export const STREAM_HEADERS: Readonly<HeaderRecord> = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
}

interface EventSinkServices {
  readonly limits: Pick<Services['limits'], 'heartbeatMs'>
  readonly runtime: Pick<Services['runtime'], 'now' | 'after'>
  readonly timeouts: Pick<Services['timeouts'], 'totalMs'>
  readonly log: Pick<Services['log'], 'failure'>
}

/**
 * Disconnects a reader that accepts no bytes for `timeouts.totalMs`. Otherwise, its buffers would stay in memory until it
 * disconnects. Never throws: most callers run in a timer or after the stage that would handle the exception.
 */
export function eventSinkOf(
  { sink, format, id }: Pick<Exchange, 'sink' | 'format' | 'id'>,
  { limits, runtime, timeouts, log }: EventSinkServices,
): EventSink {
  const { heartbeatMs } = limits
  let writtenAt = runtime.now()
  let isBlocked = false
  let isBroken = false
  let cancel: () => void = () => {}
  /** A sink that throws counts as disconnected, and accepts and drops what follows. */
  const giveUp = (cause: unknown): void => {
    isBroken = true
    isBlocked = false
    cancel()
    destroyBrokenSink(sink, () => log.failure('a stream could not be sent', cause, { request_id: id }))
  }
  const attempt = (step: () => void): void => {
    try {
      if (!isBroken) step()
    } catch (cause) {
      giveUp(cause)
    }
  }
  const write = (chunk: EventChunk): boolean => {
    writtenAt = runtime.now()
    if (isBroken) return true
    try {
      isBlocked = !sink.write(chunk)
    } catch (cause) {
      giveUp(cause)
    }
    return !isBlocked
  }
  // The timer is reset only when it fires, because resetting it on each event is slow.
  const check = (): void => {
    const silentMs = runtime.now() - writtenAt
    if (isBlocked && silentMs >= timeouts.totalMs) return attempt(() => sink.destroy())
    if (!isBlocked && silentMs >= heartbeatMs) {
      write(format.heartbeat === 'comment' ? writeSseComment('ping') : writeSseEvent(format.heartbeat))
    }
    if (!isBroken) arm(silentMs < heartbeatMs ? heartbeatMs - silentMs : heartbeatMs)
  }
  const arm = (ms: number): void => {
    cancel = runtime.after(ms, check, { isBackground: true })
  }
  arm(heartbeatMs)
  return {
    write,
    onDrain: (listener) =>
      attempt(() =>
        sink.onDrain(() => {
          isBlocked = false
          listener()
        }),
      ),
    end: () => {
      cancel()
      attempt(() => sink.end())
    },
    fail: (error) => {
      cancel()
      attempt(() => {
        sink.write(writeSseEvent(format.writeFailureEvent(asFailure(error), id)))
        sink.end()
      })
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
