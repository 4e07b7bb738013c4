import { GatewayError } from '../core/errors.ts'
import type { MaybePromise } from '../core/async.ts'
import { sha256 } from '#hash'
import type { Parsed } from './exchange.ts'
import type { Services } from './services.ts'

/** Printable ASCII, because headers transmit other characters differently. */
const KEY = /^[\x20-\x7e]{1,255}$/

/**
 * Continues with the first request of an Idempotency-Key. A repetition waits for the first request and gets its answer.
 * The same key with another path or body is refused with 409. A request without the header continues at once.
 */
export function deduplicate(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  const idempotencyKey = parsed.request.header('idempotency-key')
  if (idempotencyKey === undefined || parsed.subscribers === undefined) return parsed
  if (!KEY.test(idempotencyKey)) throw unusable()
  return claim(parsed, idempotencyKey, services)
}

async function claim(parsed: Parsed, idempotencyKey: string, services: Services): Promise<Parsed | undefined> {
  const { key, subscribers, cancellation, request, asked } = parsed
  if (subscribers === undefined) return parsed
  const claimed = await services.idempotency.claim({
    owner: key.id,
    idempotencyKey,
    // SHA-256, because a request with a forged fingerprint would get the answer of another request.
    fingerprint: sha256(`${request.path}\n${JSON.stringify(asked)}`),
    subscribers,
    signal: cancellation.signal,
    patienceMs: services.timeouts.total,
  })
  if (claimed.role === 'repetition') {
    const { repeat } = await import('./rare-stages.ts')
    return repeat(parsed, claimed.repeated, services)
  }
  parsed.first = claimed.first
  return parsed
}

function unusable(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'Idempotency-Key: expected 1 to 255 printable ASCII characters, such as a UUID.',
    { param: 'Idempotency-Key' },
  )
}
