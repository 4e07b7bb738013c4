import { Cancellation } from '../../src/core/async.ts'
import { Attempts, type UpstreamRequest } from '../../src/upstream/attempts.ts'

/** Creates the state that the calls of one request share. Without a signal, the caller never disconnects. */
export function failoverRequest(options: {
  readonly startedAt: number
  readonly signal?: AbortSignal | undefined
  readonly scope?: string | undefined
}): UpstreamRequest {
  const { signal, startedAt, scope = 'key' } = options
  const cancellation = signal === undefined ? new Cancellation() : Cancellation.of(signal)
  const caller = { keyId: scope, payer: 'operator' } as const
  return { headers: {}, cancellation, scope, caller, startedAt, attempts: new Attempts(cancellation) }
}
