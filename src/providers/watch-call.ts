import { GatewayError, type FailureDetails } from '../core/errors.ts'
import type { ProviderCall } from '../core/ports.ts'

/** The deadlines of one upstream call, and the one signal that ends it. */
export interface Watch {
  /** Aborted when the caller leaves, when a deadline passes, and by `leave`. */
  readonly signal: AbortSignal
  /** The response's first byte is here: from now on only silence between two pieces is timed. */
  readonly begun: () => void
  /** The reader waits for the next piece. Only such waits count as silence of the upstream. */
  readonly waiting: () => void
  /** The next piece has come. */
  readonly received: () => void
  /** The call is over: forgets every deadline. The first call counts. */
  readonly end: () => void
  /** The call is over before its end: closes the connection. */
  readonly leave: () => void
  /** What ended the call early: the caller's own reason, or `upstream-timeout`. Undefined while nothing did. */
  readonly stopped: () => { readonly reason: unknown } | undefined
}

/** Never shown. Without a reason the platform would create a costly DOMException for each call. */
const LEFT = new Error('The call was left')

/** A stream must begin soon and must not pause. A whole answer may take all of `timeouts.total` before its first byte. */
export type AnswerKind = 'whole' | 'stream'

export interface Watched extends Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'> {
  readonly provider: string
  readonly kind: AnswerKind
}

/** Starts the deadlines of a call: `total` for every call; for streams also `firstByte` until `begun`, then `idle`. */
export function watchCall({ signal, runtime, timeouts, provider, kind }: Watched): Watch {
  const { now, after } = runtime
  const controller = new AbortController()
  let stopped: { readonly reason: unknown } | undefined
  let ended = false
  let hasBegun = false
  let waitsSince: number | undefined

  const end = (): void => {
    ended = true
    signal.removeEventListener('abort', leaveWithCaller)
    cancelTotal()
    cancelSilence()
  }
  const stop = (reason: unknown): void => {
    if (ended) return
    end()
    stopped = { reason }
    controller.abort(reason)
  }
  const leaveWithCaller = (): void => stop(signal.reason)
  const stopLate = (what: string, ms: number, details: FailureDetails = {}): void =>
    stop(
      new GatewayError('upstream-timeout', `The provider "${provider}" ${what} within ${ms / 1000} seconds.`, details),
    )
  const stopAtTotal = (): void =>
    // An upstream that has begun to answer works: the answer is long, or its reader is slow.
    stopLate('did not finish its answer', timeouts.total, hasBegun ? { isCallerSide: true } : {})

  /** One timer for many pieces: when it fires, it computes how long the present wait is. */
  const checkSilence = (): void => {
    if (ended) return
    const silent = waitsSince === undefined ? 0 : now() - waitsSince
    if (silent >= timeouts.idle) stopLate('sent no further byte', timeouts.idle)
    else cancelSilence = after(timeouts.idle - silent, checkSilence)
  }

  const cancelTotal = after(timeouts.total, stopAtTotal)
  let cancelSilence =
    kind === 'whole'
      ? () => {}
      : after(timeouts.firstByte, () => stopLate('did not begin to answer', timeouts.firstByte))
  signal.addEventListener('abort', leaveWithCaller, { once: true })
  if (signal.aborted) leaveWithCaller()
  return {
    signal: controller.signal,
    begun() {
      hasBegun = true
      if (ended || kind === 'whole') return
      cancelSilence()
      cancelSilence = after(timeouts.idle, checkSilence)
    },
    waiting() {
      waitsSince = now()
    },
    received() {
      waitsSince = undefined
    },
    end,
    leave() {
      end()
      controller.abort(LEFT)
    },
    stopped: () => stopped,
  }
}
