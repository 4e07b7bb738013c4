import { hasFlag } from '../core/steering-headers.ts'
import { createAudience } from '../replay/audience.ts'
import type { Caller, Received } from './stages.ts'

/**
 * A request of a caller who may leave. It is ended when nobody waits for it any longer: neither its caller, nor one who
 * sent the same Idempotency-Key, nor one who follows its stream. With `X-Svc-Detach` it goes on without any caller.
 */
export function receive(
  call: Pick<Received, 'id' | 'startedAt' | 'request' | 'format'>,
): Received & { caller: Caller } {
  const controller = new AbortController()
  const abort = (reason: unknown): void => controller.abort(reason)
  const { signal } = call.request
  const isDetached = hasFlag(call.request.headers, 'X-Svc-Detach')
  const audience = createAudience(() => abort(signal.aborted ? signal.reason : new Error('The caller left.')))
  const leave = audience.join()
  if (signal.aborted) abort(signal.reason)
  else signal.addEventListener('abort', leave, { once: true })
  // A place that nobody leaves.
  if (isDetached) audience.join()
  return { ...call, signal: controller.signal, abort, caller: { audience, leave, isDetached } }
}
