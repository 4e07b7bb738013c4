import { followBody } from './follow.ts'
import { baseHead } from './head.ts'
import { release } from './settle.ts'
import type { Parts, Repetition } from './stages.ts'

/**
 * The answer of the first request with this Idempotency-Key, to the byte and with its bill: nothing is reserved, asked or
 * billed for it. One that is still being streamed is followed from its beginning.
 */
export async function repeat(repetition: Repetition, parts: Parts): Promise<Response> {
  const { repeated, key, id, format, request } = repetition
  try {
    const status = repeated.kind === 'kept' ? repeated.answer.status : 200
    const base = { ...baseHead(id, await parts.ledger.status(key)), 'idempotency-replayed': 'true' }
    await release(repetition, { status }, parts)
    if (repeated.kind === 'kept') {
      return new Response(repeated.answer.body, { status, headers: { ...base, ...repeated.answer.head } })
    }
    const { recording, head, leave } = repeated
    const body = followBody({ reader: recording.follow(0), format, request, requestId: id, leave }, parts)
    return new Response(body, { status, headers: { ...base, ...head } })
  } catch (error) {
    if (repeated.kind === 'live') repeated.leave()
    throw error
  }
}
