import { GatewayError } from '../core/errors.ts'
import type { Claimed, Parts, Repetition, Understood } from './stages.ts'

/** Printable ASCII, as a header carries it unchanged. */
const KEY = /^[\x20-\x7e]{1,255}$/

/**
 * Whether this request is the first with its Idempotency-Key. A repetition waits for the first and gets its answer; the
 * same key with another path or body is a 409. A request without one goes on as it came.
 */
export async function claim(understood: Understood, parts: Parts): Promise<Claimed | Repetition> {
  const { key, caller, request, signal } = understood
  const idempotencyKey = request.headers.get('idempotency-key')
  if (idempotencyKey === null || caller === undefined) return understood
  if (!KEY.test(idempotencyKey)) throw unusable()
  const claimed = await parts.idempotency.claim({
    owner: key.id,
    idempotencyKey,
    fingerprint: await fingerprintOf(understood),
    audience: caller.audience,
    signal,
    patienceMs: parts.timeouts.total,
  })
  return claimed.role === 'first'
    ? { ...understood, first: claimed.first }
    : { ...understood, repeated: claimed.repeated }
}

/** What was asked, and of which path: SHA-256, because a forged equal one would get another request's answer. */
async function fingerprintOf({ asked, request }: Understood): Promise<string> {
  const text = `${new URL(request.url).pathname}\n${JSON.stringify(asked)}`
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

function unusable(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'Idempotency-Key must be 1 to 255 printable ASCII characters, such as a UUID.',
    { param: 'Idempotency-Key' },
  )
}
