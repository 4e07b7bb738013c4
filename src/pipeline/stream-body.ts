import type { Frame } from '../core/answer.ts'
import type { Runtime } from '../core/ports.ts'
import { comment, writeFrame } from '../http/sse.ts'

export interface StreamBodyOptions {
  /** What is sent when nothing else was for `heartbeatMs`. */
  readonly heartbeat: Frame | 'comment'
  readonly heartbeatMs: number
  readonly after: Runtime['after']
  readonly now: Runtime['now']
  /** Called when the reader leaves, before the texts are ended. */
  readonly leave: () => void
  /** Ends the texts: some callers abort their request and never touch its body again. */
  readonly signal: AbortSignal
}

interface Silence {
  readonly start: (beat: () => void) => void
  readonly broken: () => void
  readonly stop: () => void
}

/**
 * Texts as a response body, one piece each, drawn only as fast as the reader reads. The generator is started here:
 * `return()` on one that never started would run no `finally`, and nothing would settle.
 */
export async function streamBody(
  texts: AsyncGenerator<string, void, undefined>,
  options: StreamBodyOptions,
): Promise<ReadableStream<Uint8Array>> {
  const encoder = new TextEncoder()
  const first = await texts.next()
  const silence = heartbeatTimer(options)
  let next: Promise<IteratorResult<string, void>> = Promise.resolve(first)
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
      options.leave()
      await texts.return()
    },
  })
}

/** Beats after each interval in which nothing else was sent; re-armed only when it fires, not at every piece. */
function heartbeatTimer({ after, now, heartbeatMs }: StreamBodyOptions): Silence {
  let spokeAt = now()
  let cancel: () => void = () => {}
  const arm = (ms: number, beat: () => void): void => {
    cancel = after(ms, () => {
      const left = spokeAt + heartbeatMs - now()
      if (left <= 0) {
        beat()
        spokeAt = now()
      }
      arm(left <= 0 ? heartbeatMs : left, beat)
    })
  }
  return {
    start: (beat) => arm(heartbeatMs, beat),
    broken: () => {
      spokeAt = now()
    },
    stop: () => cancel(),
  }
}
