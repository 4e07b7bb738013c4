import type { Frame } from '../core/answer.ts'
import type { Runtime } from '../core/ports.ts'
import { comment, writeFrame } from '../http/sse.ts'
import type { TextReader } from '../replay/recording.ts'

export interface StreamBodyOptions {
  /** What is sent when nothing else was for `heartbeatMs`. */
  readonly heartbeat: Frame | 'comment'
  readonly heartbeatMs: number
  readonly after: Runtime['after']
  readonly now: Runtime['now']
  /** Ends the texts: some callers abort their request and never touch its body again. */
  readonly signal: AbortSignal
}

/** What every event stream says of itself: nothing on its way may keep or change it. */
export const STREAM_HEAD = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
} as const

interface Silence {
  readonly start: (beat: () => void) => void
  readonly broken: () => void
  readonly stop: () => void
}

/**
 * Texts as a response body, one piece each, drawn only as fast as the reader reads. The first text is drawn at once, so
 * that the generator behind them has started: `return()` on one that never did would run no `finally`, and nothing
 * would settle.
 */
export function bodyOf(texts: TextReader, options: StreamBodyOptions): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder()
  const silence = heartbeatTimer(options)
  let next = texts.next()
  next.catch(() => {})
  const end = (): void => {
    silence.stop()
    // Texts that wait for their reader would not see the signal.
    texts.return().catch(() => {})
  }
  options.signal.addEventListener('abort', end, { once: true })
  return new ReadableStream<Uint8Array>({
    start: (controller) => {
      const beat = encoder.encode(options.heartbeat === 'comment' ? comment('ping') : writeFrame(options.heartbeat))
      silence.start(() => controller.enqueue(beat))
    },
    pull: async (controller) => {
      const { value, done } = await next.catch((error: unknown) => {
        silence.stop()
        throw error
      })
      silence.broken()
      if (done === true) {
        silence.stop()
        controller.close()
        return
      }
      controller.enqueue(encoder.encode(value))
      next = texts.next()
      next.catch(() => {})
    },
    cancel: async () => {
      silence.stop()
      await texts.return()
    },
  })
}

/** Beats after each interval in which nothing else was sent; re-armed only when it fires, not at every piece. */
function heartbeatTimer({ after, now, heartbeatMs }: StreamBodyOptions): Silence {
  let spokeAt = now()
  let cancel: () => void = () => {}
  const arm = (ms: number, beat: () => void): void => {
    const check = (): void => {
      const left = spokeAt + heartbeatMs - now()
      if (left <= 0) {
        beat()
        spokeAt = now()
      }
      arm(left <= 0 ? heartbeatMs : left, beat)
    }
    cancel = after(ms, check, { isBackground: true })
  }
  return {
    start: (beat) => arm(heartbeatMs, beat),
    broken: () => {
      spokeAt = now()
    },
    stop: () => cancel(),
  }
}
