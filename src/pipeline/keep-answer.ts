import { readCacheDirectives } from '../cache/cache-options.ts'
import type { HeaderRecord } from '../core/http.ts'
import { chain, type MaybePromise } from '../core/async.ts'
import type { Answered } from './exchange.ts'
import type { BillMetrics } from './bill-metrics.ts'
import type { Services } from './services.ts'
import { keepTurn } from './turns.ts'

/** A whole answer as it is sent. */
export interface WholeAnswer {
  /** Headers without those that apply only to this response. */
  readonly headers: Readonly<HeaderRecord>
  readonly body: string
  readonly id: string
  readonly metrics: BillMetrics
}

/** Keeps a whole answer for later requests: as a turn, as a stream by its id, or for its Idempotency-Key. Never rejects. */
export function keepWhole(answered: Answered, answer: WholeAnswer, services: Services): MaybePromise<void> {
  const { format, key, first } = answered
  const { headers, body, id, metrics } = answer
  if (format.answerId !== undefined && isRecorded(answered, services)) {
    services.recordings.keep(
      { kind: 'whole', text: body, metrics: { ...metrics.toJSON() } },
      key.id,
      format.answerId(id),
    )
  }
  const kept = keepTurn(answered, body, services)
  if (first === undefined) return kept
  return chain(kept, () =>
    first.remember({ status: 200, head: { ...headers, 'content-type': 'application/json' }, body }),
  )
}

/** Batch items store their own results. `Cache-Control: no-store` forbids storing the answer. */
export function isRecorded({ format, subscribers, request }: Answered, { recordings }: Services): boolean {
  if (!recordings.isOn || subscribers === undefined || format.answerId === undefined) return false
  return readCacheDirectives((name) => request.header(name)).write
}
