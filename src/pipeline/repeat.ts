import type { RepeatedAnswer } from '../replay/idempotency.ts'
import { eventSinkOf } from './event-sink.ts'
import type { Parsed } from './exchange.ts'
import { baseHeaders } from './head.ts'
import type { Services } from './services.ts'
import { release } from './settle.ts'

/**
 * Sends the answer of the first request with this Idempotency-Key, byte for byte and with its bill. The repetition
 * reserves, calls and bills nothing. An answer that is still being streamed is followed from its beginning.
 */
export async function repeat(parsed: Parsed, repeated: RepeatedAnswer, services: Services): Promise<undefined> {
  const { key, id, sink } = parsed
  try {
    const status = repeated.kind === 'kept' ? repeated.answer.status : 200
    const headers = { ...baseHeaders(id, await services.ledger.status(key)), 'idempotency-replayed': 'true' }
    await release(parsed, { status }, services)
    if (repeated.kind === 'kept') {
      sink.whole(status, { ...headers, ...repeated.answer.head }, repeated.answer.body)
      return
    }
    sink.begin(status, { ...headers, ...repeated.head })
    const stopReading = repeated.recording.follow(0, eventSinkOf(parsed, services))
    parsed.onLeave = () => {
      stopReading()
      repeated.leave()
    }
  } catch (error) {
    if (repeated.kind === 'live') repeated.leave()
    throw error
  }
}
