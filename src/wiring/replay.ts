import { offOr, optionsOf, wholeFrom, type OptionCheck } from '../core/option-checks.ts'
import type { Runtime } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { createDetached, type Detached } from '../replay/subscribers.ts'
import { lazy } from '../core/async.ts'
import type { Idempotency, IdempotencyOptions } from '../replay/idempotency.ts'
import { createRecordings, type Recordings } from '../replay/recordings.ts'

/** Messages that can be streamed again. See docs/streams.md. Bytes are counted as two for each UTF-16 unit. */
export interface StreamsOptions {
  /** How long a message can be streamed again, in seconds. @default 3600 */
  readonly keepSeconds?: number
  /** Streams that are recorded at once; more are answered and not recorded. @default 10_000 */
  readonly entries?: number
  /** What all streams that are being recorded hold together. @default 67_108_864 (64 MiB) */
  readonly bytes?: number
  /** The longest message that can be streamed again. @default 8_388_608 (8 MiB) */
  readonly bytesOfOne?: number
}

/** The check of `streams` in the gateway's options. */
export const checkStreams: OptionCheck = offOr(
  optionsOf(
    { keepSeconds: wholeFrom(1), entries: wholeFrom(1), bytes: wholeFrom(1), bytesOfOne: wholeFrom(1) },
    [],
    'false or an object of keepSeconds, entries, bytes and bytesOfOne',
  ),
)

/** What outlives a response: recordings, remembered answers, and work that goes on without its caller. */
export interface Replay {
  readonly recordings: Recordings
  readonly idempotency: Pick<Idempotency, 'claim' | 'flush'>
  readonly detached: Detached
  /** Ends detached work and waits, for a bounded time, until all that has ended is in the store. */
  close(): Promise<void>
}

export function createReplay(options: false | StreamsOptions | undefined, store: Store, runtime: Runtime): Replay {
  const { now, uuid, after } = runtime
  const recordings = createRecordings({ ...(options === false ? { isOn: false } : options), store, now, after, uuid })
  const idempotency = idempotencyOnDemand({ store, now, uuid, after })
  const detached = createDetached({ after })
  return {
    recordings,
    idempotency,
    detached,
    close: async () => {
      await detached.close()
      await Promise.all([recordings.flush(), idempotency.flush()])
    },
  }
}

/** Its code is loaded by the first request with an Idempotency-Key. */
function idempotencyOnDemand(parts: IdempotencyOptions): Replay['idempotency'] {
  let loaded: Idempotency | undefined
  const load = lazy(async () => {
    const { createIdempotency } = await import('../replay/idempotency.ts')
    return (loaded = createIdempotency(parts))
  })
  return {
    claim: async (request) => (await load()).claim(request),
    flush: async () => loaded?.flush(),
  }
}
