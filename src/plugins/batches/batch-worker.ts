import { createBatchRepository, type BatchRepository } from './batch-repository.ts'
import { waitForQuiet } from './wait-for-quiet.ts'
import { cleanUpBatches, type OpenBatch, toPosition } from './batch.ts'
import { type ItemClaim, ItemPoll, ItemQueue } from './item-queue.ts'
import type { Store } from '../../core/store.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { createItemProcessor, type ItemProcessor, type RetryDelay } from './process-item.ts'
import type { FindKeyById, Services } from '../../kernel/services.ts'

/** Options of the batch worker of this process. See docs/batches.md. */
export interface BatchOptions {
  /** Maximum number of concurrent items in this process. 0 leaves all items to other processes. @default 4 */
  readonly concurrency?: number
  /** Time after which other processes can claim the items of a killed process, in milliseconds. @default 60_000 */
  readonly leaseMs?: number
  /**
   * Keeps a serverless host awake while items are processed. @default items are processed only while the host keeps the
   * process active
   */
  readonly waitUntil?: (promise: Promise<unknown>) => void
}

export interface BatchDependencies {
  readonly store: Store
  readonly services: Services
  readonly findKeyById: FindKeyById
}

export interface BatchWorker {
  /** Starts processing without waiting for it, and resumes the paused batches of the key. */
  wake(keyId?: string): void
  /** Resolves when no more items can currently be processed. */
  work(): Promise<void>
  stop(): Promise<void>
}

export interface BatchProcessing {
  readonly repository: BatchRepository
  readonly worker: BatchWorker
}

export function createBatchProcessing(
  { concurrency = 4, leaseMs = 60_000, waitUntil }: BatchOptions,
  { store, services, findKeyById }: BatchDependencies,
): BatchProcessing {
  const { now, uuid } = services.runtime
  const dependencies = { store, now, uuid, pause: yieldToEventLoop }
  const repository = createBatchRepository(dependencies)
  const queue = new ItemQueue({ ...dependencies, leaseMs })
  const worker = createBatchWorker({
    queue,
    processor: createItemProcessor({ queue, store, findKeyById, services, leaseMs }),
    listOpenBatches: repository.listOpen,
    cleanUp: () => cleanUpBatches(dependencies),
    services,
    concurrency,
    waitUntil,
  })
  return { repository, worker }
}

interface BatchWorkerOptions extends Pick<BatchDependencies, 'services'> {
  readonly queue: ItemQueue
  readonly processor: ItemProcessor
  readonly listOpenBatches: BatchRepository['listOpen']
  readonly cleanUp: () => Promise<unknown>
  readonly concurrency: number
  readonly waitUntil: BatchOptions['waitUntil'] | undefined
}

type Task = { readonly kind: 'item'; readonly claim: ItemClaim } | { readonly kind: 'end'; readonly batch: OpenBatch }

/** Interval at which an idle process polls for batches of other processes, in milliseconds. */
const POLL_MS = 15_000
const CLEANUP_INTERVAL_MS = 600_000
const MIN_DELAY_MS = 20
const BACKOFF_MS = 5_000
const MAX_DOUBLINGS = 6
/** Short, because an operator may raise the limits of the key during the pause. */
const MAX_PAUSE_MS = 300_000
const POLLS_PER_TURN = 100

function createBatchWorker(options: BatchWorkerOptions): BatchWorker {
  const { queue, processor, services, concurrency } = options
  const { now, after, random } = services.runtime
  /** By key id and batch id, least recently served first. */
  const polls = new Map<string, Map<string, ItemPoll>>()
  const pausedUntil = new Map<string, number>()
  const workers = new Set<Promise<void>>()
  const stopController = new AbortController()
  /** True if the open batches must be listed again. */
  let isStale = true
  let internalErrors = 0
  let nextPollAt = Infinity
  let cleanedUpAt = -Infinity
  let cancelTimer: () => void = () => {}
  let lastOperation: Promise<unknown> = Promise.resolve()

  async function runWorker(): Promise<void> {
    try {
      for (;;) {
        await waitForQuiet(services.requestTracker, stopController.signal, services.runtime)
        // Rejected items complete without waiting. Without this pause, thousands of them would block the event loop.
        await yieldToEventLoop()
        if (stopController.signal.aborted) return
        const task = await inSequence(nextTask)
        if (task === undefined && isStale) continue
        if (task === undefined) return
        await (task.kind === 'end' ? queue.end(task.batch) : processItem(task.claim))
        internalErrors = 0
      }
    } catch (cause) {
      backOff(cause)
    }
  }

  function backOff(cause: unknown): void {
    if (isInternalError(cause)) {
      internalErrors = Math.min(internalErrors + 1, MAX_DOUBLINGS)
      services.log.failure('batches could not be processed', cause)
    } else {
      nextPollAt = Math.min(nextPollAt, now() + BACKOFF_MS)
    }
    // Replaces this worker. Otherwise, fewer workers would continue until all of them are idle.
    schedule(BACKOFF_MS * 2 ** internalErrors)
  }

  async function processItem(claim: ItemClaim): Promise<void> {
    try {
      const retry = await processor.process(claim)
      if (retry !== undefined) await pauseKey(claim, retry)
    } catch (cause) {
      if (!isInternalError(cause)) throw cause
      // The item would fail again, so the error is stored as its result.
      services.log.failure('a batch item failed', cause, { batch_id: claim.batch.id, item: claim.position })
      await processor.fail(claim)
    }
  }

  /** Pauses all batches of the key, because its next items would probably fail for the same reason. */
  async function pauseKey(claim: ItemClaim, { batch, delayMs }: RetryDelay): Promise<void> {
    const until = Math.min(now() + Math.min(delayMs, MAX_PAUSE_MS), batch.expiresAt)
    pausedUntil.set(batch.keyId, Math.max(until, pausedUntil.get(batch.keyId) ?? 0))
    await queue.release(claim, now())
  }

  function inSequence<Value>(operation: () => Promise<Value>): Promise<Value> {
    const next = lastOperation.then(operation)
    lastOperation = next.catch(() => {})
    return next
  }

  async function nextTask(): Promise<Task | undefined> {
    if (isStale) await refresh()
    const nowMs = now()
    for (const [keyId, keyPolls] of Array.from(polls)) {
      const pauseEnd = pausedUntil.get(keyId) ?? 0
      if (pauseEnd > nowMs) {
        nextPollAt = Math.min(nextPollAt, pauseEnd)
        continue
      }
      // Moves the key to the end of the map, so that a key with many batches does not delay other keys.
      polls.delete(keyId)
      polls.set(keyId, keyPolls)
      const task = await nextTaskOf(keyPolls)
      if (keyPolls.size === 0) polls.delete(keyId)
      if (task !== undefined) return task
    }
    return undefined
  }

  async function nextTaskOf(keyPolls: Map<string, ItemPoll>): Promise<Task | undefined> {
    for (const [id, poll] of Array.from(keyPolls)) {
      keyPolls.delete(id)
      keyPolls.set(id, poll)
      const result = await poll.next()
      if (result.kind === 'item') return result
      if (result.kind === 'none') {
        keyPolls.delete(id)
        return { kind: 'end', batch: poll.batch }
      }
      nextPollAt = Math.min(nextPollAt, result.until)
    }
    return undefined
  }

  async function refresh(): Promise<void> {
    isStale = false
    if (now() - cleanedUpAt >= CLEANUP_INTERVAL_MS) {
      cleanedUpAt = now()
      await options.cleanUp()
    }
    const known = new Map(Array.from(polls.values()).flatMap((keyPolls) => Array.from(keyPolls)))
    const open = await options.listOpenBatches((id) => known.get(id)?.batch)
    const ids = new Set(open.map(({ id }) => id))
    for (const [id, { batch }] of known) if (!ids.has(id)) polls.get(batch.keyId)?.delete(id)
    for (const [keyId, until] of Array.from(pausedUntil)) if (until <= now()) pausedUntil.delete(keyId)
    const added = open.filter((batch) => !known.has(batch.id))
    for (const [index, batch] of added.entries()) {
      const keyPolls = polls.get(batch.keyId) ?? new Map<string, ItemPoll>()
      polls.set(batch.keyId, keyPolls.set(batch.id, await createPoll(batch)))
      if (index % POLLS_PER_TURN === 0) await yieldToEventLoop()
    }
  }

  /** Starts at a random item, so that processes sharing a batch rarely claim the same item. */
  async function createPoll(batch: OpenBatch): Promise<ItemPoll> {
    const total = (await queue.readBatch(batch))?.total ?? 0
    const start = Math.floor(random() * total)
    return new ItemPoll(queue, batch, start === 0 ? undefined : toPosition(start - 1))
  }

  function wake(keyId?: string): void {
    if (stopController.signal.aborted) return
    if (keyId !== undefined) pausedUntil.delete(keyId)
    isStale = true
    cancelTimer()
    const wasIdle = workers.size === 0
    nextPollAt = Infinity
    while (workers.size < concurrency) startWorker()
    if (wasIdle) keepAwake()
  }

  function keepAwake(): void {
    try {
      options.waitUntil?.(waitForIdle())
    } catch {
      // Some hosts throw if `waitUntil` is called outside a request.
    }
  }

  function startWorker(): void {
    const running = runWorker().finally(() => {
      workers.delete(running)
      if (workers.size > 0) return
      schedule(internalErrors > 0 ? BACKOFF_MS * 2 ** internalErrors : isStale ? MIN_DELAY_MS : POLL_MS)
    })
    workers.add(running)
  }

  async function waitForIdle(): Promise<void> {
    while (workers.size > 0) await Promise.all(workers)
  }

  function schedule(maxDelayMs: number): void {
    if (stopController.signal.aborted) return
    cancelTimer()
    const delay = Math.max(MIN_DELAY_MS, Math.min(maxDelayMs, nextPollAt - now()))
    cancelTimer = after(delay, () => wake(), { isBackground: true })
  }

  async function stop(): Promise<void> {
    stopController.abort()
    cancelTimer()
    processor.cancel()
    await waitForIdle()
  }

  return {
    wake,
    work: () => {
      wake()
      return waitForIdle()
    },
    stop,
  }
}

/** Unlike store errors, these errors would recur on a retry. */
function isInternalError(cause: unknown): boolean {
  return [TypeError, RangeError, ReferenceError, SyntaxError].some((kind) => cause instanceof kind)
}
