import { GatewayError } from '../core/errors.ts'
import type { ProviderCall } from '../core/ports.ts'

/** The deadlines of one upstream call, and the one signal that ends it. */
export interface Watch {
  /** Aborted when the caller leaves, when a deadline passes, and by `leave`. */
  readonly signal: AbortSignal
  /** The response's first byte is here: from now on only silence between two pieces is timed. */
  readonly begun: () => void
  /** Somebody waits for the next piece. A reader who takes his time is not the upstream's silence. */
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

/** Nobody sees it; without a reason the platform would make a costly one for each call. */
const LEFT = new Error('The call was left')

type Watched = Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'>

/** Starts the deadlines of a call: total at once, first byte until `begun`, idle while somebody waits after it. */
export function watchCall(call: Watched, provider: string): Watch {
  const { signal, timeouts } = call
  const { now, after } = call.runtime
  const controller = new AbortController()
  let stopped: { readonly reason: unknown } | undefined
  let ended = false
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
  const late = (what: string, ms: number) => (): void =>
    stop(new GatewayError('upstream-timeout', `The provider "${provider}" ${what} within ${ms / 1000} seconds.`))
  const timedOut = late('sent no further byte', timeouts.idle)

  /** One timer for many pieces: when it fires it looks how long the present wait really is. */
  const lookAtSilence = (): void => {
    if (ended) return
    const silent = waitsSince === undefined ? 0 : now() - waitsSince
    if (silent >= timeouts.idle) timedOut()
    else cancelSilence = after(timeouts.idle - silent, lookAtSilence)
  }

  const cancelTotal = after(timeouts.total, late('did not finish its answer', timeouts.total))
  let cancelSilence = after(timeouts.firstByte, late('did not begin to answer', timeouts.firstByte))
  signal.addEventListener('abort', leaveWithCaller, { once: true })
  if (signal.aborted) leaveWithCaller()
  return {
    signal: controller.signal,
    begun() {
      if (ended) return
      cancelSilence()
      cancelSilence = after(timeouts.idle, lookAtSilence)
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
