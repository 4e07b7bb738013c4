import { offOr, optionsOf, wholeFrom, type OptionCheck } from '../core/option-checks.ts'
import type { Runtime } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { createDetached, type Detached } from '../replay/subscribers.ts'
import { lazy } from '../core/async.ts'
import type { Idempotency, IdempotencyOptions } from '../replay/idempotency.ts'
import { createRecordings, type Recordings } from '../replay/recordings.ts'

/** Options of recorded streams. See docs/streams.md. Each UTF-16 unit counts as two bytes. */
export interface StreamsOptions {
  /** How long a message can be replayed, in seconds. @default 3600 */
  readonly keepSeconds?: number
  /** Maximum number of concurrent recordings. Further streams are served without a recording. @default 10_000 */
  readonly entries?: number
  /** Maximum size of all concurrent recordings, in bytes. @default 67_108_864 (64 MiB) */
  readonly bytes?: number
  /** Maximum size of one recording, in bytes. @default 8_388_608 (8 MiB) */
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

/** State that outlives a response: recordings, stored answers, and work without a caller. */
export interface Replay {
  readonly recordings: Recordings
  readonly idempotency: Pick<Idempotency, 'claim' | 'flush'>
  readonly detached: Detached
  /** Ends detached work and waits, for a limited time, until its recordings are stored. */
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

/** Loads the code with the first request that has an Idempotency-Key. */
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
