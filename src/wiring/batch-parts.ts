import { createBatchRepository, type BatchRepository } from '../batches/batch-repository.ts'
import { createItemQueue } from '../batches/item-queue.ts'
import { cleanUpBatches } from '../batches/batch.ts'
import type { Store } from '../core/store.ts'
import type { KeyById } from '../pipeline/answer-item.ts'
import type { Services } from '../pipeline/services.ts'
import type { Traffic } from '../pipeline/traffic.ts'
import { createBatchWork, type BatchWork } from '../pipeline/work-batches.ts'
import { yieldToEventLoop } from '../tokens/yield.ts'

/** Options of the batch worker of this process. See docs/batches.md. */
export interface BatchOptions {
  /** Maximum number of concurrent items in this process. 0 leaves all items to other processes. @default 4 */
  readonly concurrency?: number
  /** Time after which other processes take over the items of a killed process, in milliseconds. @default 60_000 */
  readonly leaseMs?: number
  /** Keeps a serverless host awake while items are processed. @default items are processed while the process lives */
  readonly waitUntil?: (promise: Promise<unknown>) => void
}

export interface OpenBatches {
  readonly book: BatchRepository
  readonly work: BatchWork
}

export interface BatchSources {
  readonly store: Store
  readonly services: Services
  readonly keyById: KeyById
  readonly traffic: Traffic
}

const LEASE_MS = 60_000
const CONCURRENCY = 4

export function openBatches(options: BatchOptions, { store, services, keyById, traffic }: BatchSources): OpenBatches {
  const { now, uuid } = services.runtime
  const { leaseMs = LEASE_MS, concurrency = CONCURRENCY, waitUntil } = options
  const values = { store, now, uuid, pause: yieldToEventLoop }
  const book = createBatchRepository(values)
  const work = createBatchWork({
    queue: createItemQueue({ ...values, leaseMs }),
    open: book.open,
    tidy: () => cleanUpBatches(values),
    settle: async (settlement) => store.settle(settlement),
    keyById,
    traffic,
    services,
    concurrency,
    leaseMs,
    ...(waitUntil !== undefined && { waitUntil }),
  })
  return { book, work }
}
