import type { Batch } from './batch.ts'
import { type ItemClaim, type ItemQueue, type ItemResult, writeResultLine, type StoredRequest } from './item-queue.ts'
import { Cancellation, type MaybePromise } from '../../core/async.ts'
import { type FailureKind, GatewayError } from '../../core/errors.ts'
import type { Store } from '../../core/store.ts'
import type { RequestUsage, Reservation, SettlementRecord } from '../../governance/reservation.ts'
import { type Authenticated, Exchange, type PostponedSettlement } from '../../kernel/exchange.ts'
import { modelStages } from '../../kernel/run.ts'
import type { FindKeyById, Services } from '../../kernel/services.ts'
import { unbilledUsage } from '../../kernel/settle.ts'
import { CollectedResponse, internalRequest } from '../../http/internal-request.ts'
import { findStoredCaller } from '../../kernel/authenticate.ts'
import { messagesClient } from '../../formats/messages/client.ts'
import { requestIdOf } from '../../kernel/request-id.ts'
import type { RequestOutcome } from '../../kernel/finished-request.ts'

export interface ItemProcessor {
  /** Resolves with undefined if the item is done, was released, or belongs to another worker. */
  process(claim: ItemClaim): Promise<RetryDelay | undefined>
  fail(claim: ItemClaim): Promise<void>
  /** Cancels current and later requests, so that their items can be released immediately. */
  cancel(): void
}

export interface RetryDelay {
  readonly batch: Batch
  readonly delayMs: number
}

interface ItemProcessorOptions {
  readonly queue: ItemQueue
  readonly store: Pick<Store, 'settle'>
  readonly findKeyById: FindKeyById
  readonly services: Services
  readonly leaseMs: number
}

const UNWRITTEN_BATCH_DELAY_MS = 1_000

export function createItemProcessor(options: ItemProcessorOptions): ItemProcessor {
  const { queue, store, findKeyById, services, leaseMs } = options
  const { now, after } = services.runtime
  const closing = new Cancellation()

  async function process(claim: ItemClaim): Promise<RetryDelay | undefined> {
    const batch = await queue.readBatch(claim.batch)
    // The batch is still being written or has been deleted.
    if (batch?.state !== 'working') return void (await queue.release(claim, now() + UNWRITTEN_BATCH_DELAY_MS))
    const stored = await queue.readResult(claim)
    if (stored !== undefined) return settleAgain(claim, stored)
    const request = await queue.readRequest(claim)
    const customId = request?.customId ?? claim.position
    const endState = batch.canceledAt !== undefined ? 'canceled' : now() >= batch.expiresAt ? 'expired' : undefined
    if (endState !== undefined) return finish(claim, { line: writeResultLine(customId, endState) })
    if (request === undefined) return finish(claim, { line: errorLine(customId, LOST_MESSAGE) })
    const response = await runWithLease(claim, (cancellation) =>
      responseItem({ batch, request, cancellation }, services, findKeyById),
    )
    if (response.retryAfterMs === undefined) return finish(claim, response.result, response.commit)
    await response.commit(true)
    return { batch, delayMs: response.retryAfterMs }
  }

  async function finish(
    claim: ItemClaim,
    result: ItemResult,
    commit: (isBilled: boolean) => Promise<void> = async () => {},
  ): Promise<undefined> {
    const stored = (await queue.renew(claim)) ? await queue.finish(claim, result) : undefined
    await commit(stored !== undefined)
    if (stored !== undefined) await queue.close(claim, stored)
  }

  /** The process that stored the result may have stopped before settling. The store applies a settlement only once. */
  async function settleAgain(claim: ItemClaim, result: ItemResult): Promise<undefined> {
    if (result.settlement !== undefined) await store.settle(result.settlement)
    await queue.close(claim, result)
  }

  async function runWithLease<Value>(
    claim: ItemClaim,
    work: (cancellation: Cancellation) => Promise<Value>,
  ): Promise<Value> {
    const cancellation = new Cancellation()
    let isDone = false
    let cancelTimer: () => void = () => {}
    let renewal: Promise<void> | undefined
    const startRenewal = (): void => void (renewal = renew().catch(schedule))
    const schedule = (): void => {
      if (!isDone) cancelTimer = after(leaseMs / 3, startRenewal, { isBackground: true })
    }
    const renew = async (): Promise<void> => {
      if (await queue.renew(claim)) schedule()
      else if (!isDone) cancellation.cancel(new Error('The claim on the batch item was lost.'))
    }
    const unsubscribe = closing.onCancel(() => cancellation.cancel(closing.reason))
    schedule()
    try {
      return await work(cancellation)
    } finally {
      isDone = true
      unsubscribe()
      cancelTimer()
      // Until a renewal ends, the value of the claim is unknown, so the claim would seem to be lost.
      await renewal
    }
  }

  return {
    process,
    fail: async (claim) => {
      // Reading the request may have caused the failure.
      const request = await queue.readRequest(claim).catch(() => undefined)
      return finish(claim, { line: errorLine(request?.customId ?? claim.position, FAILED_MESSAGE) })
    },
    cancel: () => closing.cancel(new Error('The gateway is closing.')),
  }
}

const FAILED_MESSAGE = 'The gateway failed to process this item because of an internal error. Send its request again.'
const LOST_MESSAGE = 'The request of this item was lost. Send it again.'

function errorLine(customId: string, message: string): string {
  return writeResultLine(
    customId,
    'errored',
    JSON.stringify({ type: 'error', error: { type: 'api_error', message }, request_id: null }),
  )
}

interface ItemResponse {
  readonly result: ItemResult
  /** Absent if the result is final. */
  readonly retryAfterMs?: number
  /** `isBilled` is false if another worker has claimed the item or stored its result. */
  commit(isBilled: boolean): Promise<void>
}

interface ItemJob {
  readonly batch: Batch
  readonly request: StoredRequest
  readonly cancellation: Cancellation
}

async function responseItem(job: ItemJob, services: Services, findKeyById: FindKeyById): Promise<ItemResponse> {
  const { batch, request } = job
  const end = new PostponedEnd()
  const authenticate = async (): Promise<Pick<Authenticated, 'key' | 'caller'>> => {
    const caller = await findStoredCaller(batch, findKeyById, services)
    rejectStream(request)
    return { key: caller.key, caller }
  }
  const response = new CollectedResponse()
  await modelStages(services, authenticate).run(createExchange(job, response, end, services), services)
  const line = writeResultLine(request.customId, response.status === 200 ? 'succeeded' : 'errored', response.body)
  const settlement = end.settlement()
  const retryAfterMs = retryDelayOf(end.failure)
  return {
    result: { line, ...(settlement !== undefined && { settlement }) },
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    commit: (isBilled) => end.commit(isBilled),
  }
}

function createExchange(
  { batch, request, cancellation }: ItemJob,
  sink: CollectedResponse,
  settlement: PostponedSettlement,
  { runtime }: Services,
): Exchange {
  const start = {
    id: requestIdOf(runtime.uuid()),
    startedAt: runtime.now(),
    request: internalRequest('/v1/messages', batch.headers, request.body),
    sink,
    format: messagesClient,
  }
  return new Exchange(start, { hasClient: false, isDetached: false, cancellation, settlement })
}

function rejectStream({ params }: StoredRequest): void {
  if (params['stream'] !== true) return
  throw new GatewayError('invalid-request', 'A batch item cannot be streamed. Remove stream from its params.', {
    param: 'stream',
  })
}

const TEMPORARY_FAILURES: ReadonlySet<FailureKind> = new Set([
  'rate-limited',
  'upstream-rate-limited',
  'overloaded',
  'cancelled',
])
const DEFAULT_WAIT_MS = 10_000

function retryDelayOf(failure: GatewayError | undefined): number | undefined {
  if (failure === undefined || !TEMPORARY_FAILURES.has(failure.kind)) return undefined
  if (failure.kind === 'cancelled') return 0
  const { advice, retryAfterSeconds } = failure.details
  if (advice?.shouldRetry === 'false') return undefined
  return retryAfterSeconds === undefined ? DEFAULT_WAIT_MS : retryAfterSeconds * 1000
}

/**
 * The worker stores the result together with its settlement before it settles. Otherwise, a worker that takes over from
 * a dead one would bill the item twice.
 */
class PostponedEnd implements PostponedSettlement {
  failure: GatewayError | undefined = undefined
  #settled:
    | { readonly reservation: Reservation; readonly used: RequestUsage; readonly entries: readonly SettlementRecord[] }
    | undefined
  #observe: (() => MaybePromise<void>) | undefined

  accept({ isReserved }: Reservation): void {
    if (!isReserved) throw notReserved()
  }

  settle(reservation: Reservation, used: RequestUsage, entries: readonly SettlementRecord[]): void {
    this.#settled ??= { reservation, used, entries }
  }

  observe({ failure }: RequestOutcome, observe: () => MaybePromise<void>): void {
    if (this.#observe !== undefined) return
    this.#observe = observe
    this.failure = failure
  }

  settlement(): ItemResult['settlement'] {
    const settled = this.#settled
    return settled?.reservation.settlement(settled.used, settled.entries)
  }

  /** If another worker bills the item, the vendor charges for the discarded answer, but the key is not billed. */
  async commit(isBilled: boolean): Promise<void> {
    if (this.#settled !== undefined) {
      const { reservation, used, entries } = this.#settled
      await (isBilled ? reservation.settle(used, entries) : reservation.settle(unbilledUsage(used.model, used.actual)))
    }
    if (isBilled) await this.#observe?.()
  }
}

/** The item is retried even with `onStoreFailure: 'allow'`, because its settlement must be written to the store. */
function notReserved(): GatewayError {
  return new GatewayError(
    'overloaded',
    'The store failed before quota was reserved for this item. The item will be retried.',
  )
}
