import { type Batch } from '../batches/batch.ts'
import { type ItemClaim, type ItemQueue, type ItemResult, writeResultLine } from '../batches/item-queue.ts'
import { Cancellation } from '../core/async.ts'
import type { Store } from '../core/store.ts'
import { answerItem, type FindKeyById } from './answer-item.ts'
import type { Services } from './services.ts'

export interface ItemProcessor {
  /** Resolves with the delay before the next attempt, or with undefined if the item is done or was released. */
  process(claim: ItemClaim): Promise<RetryDelay | undefined>
  /** Stores an error as the result of an item whose processing threw an error. */
  fail(claim: ItemClaim): Promise<void>
  /** Cancels and releases the items in progress, so that other processes can claim them immediately. */
  cancel(): void
}

export interface RetryDelay {
  readonly batch: Batch
  readonly delayMs: number
}

export interface ItemProcessorOptions {
  readonly queue: ItemQueue
  readonly store: Pick<Store, 'settle'>
  readonly findKeyById: FindKeyById
  readonly services: Services
  /** Duration of an item's lease, in milliseconds. The lease is renewed whenever a third of this time has passed. */
  readonly leaseMs: number
}

/** Delay after which an item of a batch that is still being written can be claimed again, in milliseconds. */
const UNWRITTEN_BATCH_DELAY_MS = 1_000

export function createItemProcessor(options: ItemProcessorOptions): ItemProcessor {
  const { queue, store, findKeyById, services, leaseMs } = options
  const { now, after } = services.runtime
  const running = new Set<Cancellation>()

  async function process(claim: ItemClaim): Promise<RetryDelay | undefined> {
    const batch = await queue.readBatch(claim.batch)
    // The batch is still being written or has been deleted.
    if (batch?.state !== 'working') return void (await queue.release(claim, now() + UNWRITTEN_BATCH_DELAY_MS))
    const stored = await queue.readResult(claim)
    if (stored !== undefined) return settleAgain(claim, stored)
    const request = await queue.readRequest(claim)
    const customId = request?.customId ?? claim.position
    const endState = batch.cancelledAt !== undefined ? 'canceled' : now() >= batch.expiresAt ? 'expired' : undefined
    if (endState !== undefined) return finish(claim, { line: writeResultLine(customId, endState) })
    if (request === undefined) return finish(claim, { line: errorLine(customId, LOST_MESSAGE) })
    const answer = await runWithLease(claim, (cancellation) =>
      answerItem({ batch, request, cancellation }, services, findKeyById),
    )
    if (answer.retryAfterMs === undefined) return finish(claim, answer.result, answer.commit)
    await answer.commit(true)
    return { batch, delayMs: answer.retryAfterMs }
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

  /**
   * Settles the reservation of a stored result again, because the process that stored the result may have stopped
   * before settling. The store applies a settlement only once.
   */
  async function settleAgain(claim: ItemClaim, result: ItemResult): Promise<undefined> {
    if (result.settlement !== undefined) await store.settle(result.settlement)
    await queue.close(claim, result)
  }

  /** Renews the lease while the work runs. If the lease is lost, cancels the work. */
  async function runWithLease<Value>(
    claim: ItemClaim,
    work: (cancellation: Cancellation) => Promise<Value>,
  ): Promise<Value> {
    const cancellation = new Cancellation()
    let isDone = false
    let cancelTimer: () => void = () => {}
    const schedule = (): void => {
      if (!isDone) cancelTimer = after(leaseMs / 3, () => void renew().catch(schedule), { isBackground: true })
    }
    const renew = async (): Promise<void> => {
      if (await queue.renew(claim)) schedule()
      else if (!isDone) cancellation.cancel(new Error('Another worker has claimed the item.'))
    }
    running.add(cancellation)
    schedule()
    try {
      return await work(cancellation)
    } finally {
      isDone = true
      running.delete(cancellation)
      cancelTimer()
    }
  }

  return {
    process,
    fail: (claim) => finish(claim, { line: errorLine(claim.position, FAILED_MESSAGE) }),
    cancel: () => {
      for (const cancellation of running) cancellation.cancel(new Error('The gateway is closing.'))
    },
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
