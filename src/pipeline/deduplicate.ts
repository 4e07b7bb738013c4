import { GatewayError } from '../core/errors.ts'
import { sha256 } from '#hash'
import type { Parsed } from './exchange.ts'
import type { Services } from './services.ts'
import type { ReplayedAnswer } from '../replay/idempotency.ts'
import { baseHeaders } from './response.ts'
import { eventSinkOf } from './event-sink.ts'
import { release } from './settle.ts'

/** Accepts only printable ASCII, because clients encode other characters in headers differently. */
const KEY_PATTERN = /^[\x20-\x7e]{1,255}$/

/**
 * Processes only the first request with a given Idempotency-Key. A repeated request waits for the first one and
 * receives its answer. A request with the same key but a different path or body is rejected with 409.
 */
export async function deduplicate(parsed: Parsed, services: Services): Promise<Parsed | undefined> {
  const { key, subscribers, cancellation, request, requestBody } = parsed
  const idempotencyKey = request.header('idempotency-key')
  if (idempotencyKey === undefined || subscribers === undefined) return parsed
  if (!KEY_PATTERN.test(idempotencyKey)) throw invalidIdempotencyKey()
  const claimed = await services.idempotency.claim({
    owner: key.id,
    idempotencyKey,
    // A request with a forged fingerprint would receive the answer of another request, so the hash must be SHA-256.
    fingerprint: sha256(`${request.path}\n${JSON.stringify(requestBody)}`),
    subscribers,
    signal: cancellation.signal,
    timeoutMs: services.timeouts.total,
  })
  if (claimed.role === 'repetition') return replay(parsed, claimed.replayed, services)
  parsed.idempotencyClaim = claimed.first
  return parsed
}

function invalidIdempotencyKey(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'Idempotency-Key: expected 1 to 255 printable ASCII characters, such as a UUID.',
    { param: 'Idempotency-Key' },
  )
}

/**
 * Sends the answer of the first request with this Idempotency-Key, byte for byte and with its bill. The repeated
 * request makes no reservation or upstream call, and is not billed. An answer that is still being streamed is sent from
 * its beginning.
 */
async function replay(parsed: Parsed, replayed: ReplayedAnswer, services: Services): Promise<undefined> {
  const { key, id, sink } = parsed
  try {
    const headers = { ...baseHeaders(id, await services.ledger.status(key)), 'idempotency-replayed': 'true' }
    if (replayed.kind === 'complete') {
      const { status, head, body } = replayed.answer
      await release(parsed, { status }, services)
      sink.send(status, { ...headers, ...head }, body)
      return
    }
    await release(parsed, { status: 200 }, services)
    sink.begin(200, { ...headers, ...replayed.head })
    const stopReading = replayed.recording.follow(0, eventSinkOf(parsed, services))
    parsed.onDisconnect = () => {
      stopReading()
      replayed.leave()
    }
  } catch (error) {
    if (replayed.kind === 'live') replayed.leave()
    throw error
  }
}
