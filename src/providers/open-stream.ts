/** Opens the stream of an attempt. Loaded with the first stream. */
import { GatewayError } from '../core/errors.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'
import { type UpstreamAttempt, reportFailure, remainingMs } from './upstream-attempt.ts'

export async function openStream(
  attempt: UpstreamAttempt,
  stream: UpstreamStream,
  hasDeadline: boolean,
  holdMs: number,
): Promise<void> {
  const { options, call, candidate, permit, record } = attempt
  const { runtime, timeouts } = options
  record.recordResponse(stream.translator)
  const onTimeout = (): void => {
    const message = `The provider "${candidate.provider.name}" did not finish its response within ${timeouts.totalMs / 1000} seconds.`
    stream.fail(new GatewayError('upstream-timeout', message, { isLocalFault: true }))
  }
  // The iterator of a custom provider may not enforce `timeouts.totalMs`.
  const cancelTimer = hasDeadline ? undefined : runtime.after(Math.max(1, remainingMs(options, call)), onTimeout)
  const opened = stream.open(runtime, holdMs)
  // Subscribes after `open`, because an abort before `open` would not reject its promise.
  const unsubscribe = call.cancellation.onCancel(() => stream.abort(call.cancellation.reason))
  try {
    await opened
  } catch (error) {
    cancelTimer?.()
    throw error
  } finally {
    unsubscribe()
  }
  const endWith = (report: () => void): void => {
    cancelTimer?.()
    report()
  }
  stream.observeEnd({
    onComplete: () => endWith(() => permit.recordSuccess(runtime.now())),
    onError: (error) => endWith(() => reportFailure(attempt, error)),
    onDisconnect: () => endWith(() => permit.discard()),
  })
}
