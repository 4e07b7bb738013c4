import { BatchRepository } from './batch-repository.ts'
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
  const repository = new BatchRepository(dependencies)
  const queue = new ItemQueue({ ...dependencies, leaseMs })
  const worker = new BatchWorker({
    queue,
    processor: createItemProcessor({ queue, store, findKeyById, services, leaseMs }),
    listOpenBatches: (findKnown) => repository.listOpen(findKnown),
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

export class BatchWorker {
  readonly #options: BatchWorkerOptions
  readonly #queue: BatchWorkerOptions['queue']
  readonly #processor: BatchWorkerOptions['processor']
  readonly #services: BatchWorkerOptions['services']
  readonly #concurrency: BatchWorkerOptions['concurrency']
  readonly #now: BatchWorkerOptions['services']['runtime']['now']
  readonly #after: BatchWorkerOptions['services']['runtime']['after']
  readonly #random: BatchWorkerOptions['services']['runtime']['random']
  /** By key id and batch id, least recently served first. */
  readonly #polls = new Map<string, Map<string, ItemPoll>>()
  readonly #pausedUntil = new Map<string, number>()
  readonly #workers = new Set<Promise<void>>()
  readonly #stopController = new AbortController()
  /** True if the open batches must be listed again. */
  #isStale = true
  #internalErrors = 0
  #nextPollAt = Infinity
  #cleanedUpAt = -Infinity
  #cancelTimer: () => void = () => {}
  #lastOperation: Promise<unknown> = Promise.resolve()

  constructor(options: BatchWorkerOptions) {
    this.#options = options
    const { queue, processor, services, concurrency } = options
    this.#queue = queue
    this.#processor = processor
    this.#services = services
    this.#concurrency = concurrency
    const { now, after, random } = services.runtime
    this.#now = now
    this.#after = after
    this.#random = random
  }

  async #runWorker(): Promise<void> {
    try {
      for (;;) {
        await waitForQuiet(this.#services.requestTracker, this.#stopController.signal, this.#services.runtime)
        // Rejected items complete without waiting. Without this pause, thousands of them would block the event loop.
        await yieldToEventLoop()
        if (this.#stopController.signal.aborted) return
        const task = await this.#inSequence(() => this.#nextTask())
        if (task === undefined && this.#isStale) continue
        if (task === undefined) return
        await (task.kind === 'end' ? this.#queue.end(task.batch) : this.#processItem(task.claim))
        this.#internalErrors = 0
      }
    } catch (cause) {
      this.#backOff(cause)
    }
  }

  #backOff(cause: unknown): void {
    if (isInternalError(cause)) {
      this.#internalErrors = Math.min(this.#internalErrors + 1, MAX_DOUBLINGS)
      this.#services.log.failure('batches could not be processed', cause)
    } else {
      this.#nextPollAt = Math.min(this.#nextPollAt, this.#now() + BACKOFF_MS)
    }
    // Replaces this worker. Otherwise, fewer workers would continue until all of them are idle.
    this.#schedule(BACKOFF_MS * 2 ** this.#internalErrors)
  }

  async #processItem(claim: ItemClaim): Promise<void> {
    try {
      const retry = await this.#processor.process(claim)
      if (retry !== undefined) await this.#pauseKey(claim, retry)
    } catch (cause) {
      if (!isInternalError(cause)) throw cause
      // The item would fail again, so the error is stored as its result.
      this.#services.log.failure('a batch item failed', cause, { batch_id: claim.batch.id, item: claim.position })
      await this.#processor.fail(claim)
    }
  }

  /** Pauses all batches of the key, because its next items would probably fail for the same reason. */
  async #pauseKey(claim: ItemClaim, { batch, delayMs }: RetryDelay): Promise<void> {
    const until = Math.min(this.#now() + Math.min(delayMs, MAX_PAUSE_MS), batch.expiresAt)
    this.#pausedUntil.set(batch.scope, Math.max(until, this.#pausedUntil.get(batch.scope) ?? 0))
    await this.#queue.release(claim, this.#now())
  }

  #inSequence<Value>(operation: () => Promise<Value>): Promise<Value> {
    const next = this.#lastOperation.then(operation)
    this.#lastOperation = next.catch(() => {})
    return next
  }

  async #nextTask(): Promise<Task | undefined> {
    if (this.#isStale) await this.#refresh()
    const nowMs = this.#now()
    for (const [scope, keyPolls] of Array.from(this.#polls)) {
      const pauseEnd = this.#pausedUntil.get(scope) ?? 0
      if (pauseEnd > nowMs) {
        this.#nextPollAt = Math.min(this.#nextPollAt, pauseEnd)
        continue
      }
      // Moves the key to the end of the map, so that a key with many batches does not delay other keys.
      this.#polls.delete(scope)
      this.#polls.set(scope, keyPolls)
      const task = await this.#nextTaskOf(keyPolls)
      if (keyPolls.size === 0) this.#polls.delete(scope)
      if (task !== undefined) return task
    }
    return undefined
  }

  async #nextTaskOf(keyPolls: Map<string, ItemPoll>): Promise<Task | undefined> {
    for (const [id, poll] of Array.from(keyPolls)) {
      keyPolls.delete(id)
      keyPolls.set(id, poll)
      const result = await poll.next()
      if (result.kind === 'item') return result
      if (result.kind === 'none') {
        keyPolls.delete(id)
        return { kind: 'end', batch: poll.batch }
      }
      this.#nextPollAt = Math.min(this.#nextPollAt, result.until)
    }
    return undefined
  }

  async #refresh(): Promise<void> {
    this.#isStale = false
    if (this.#now() - this.#cleanedUpAt >= CLEANUP_INTERVAL_MS) {
      this.#cleanedUpAt = this.#now()
      await this.#options.cleanUp()
    }
    const known = new Map(Array.from(this.#polls.values()).flatMap((keyPolls) => Array.from(keyPolls)))
    const open = await this.#options.listOpenBatches((id) => known.get(id)?.batch)
    const ids = new Set(open.map(({ id }) => id))
    for (const [id, { batch }] of known) if (!ids.has(id)) this.#polls.get(batch.scope)?.delete(id)
    for (const [scope, until] of Array.from(this.#pausedUntil))
      if (until <= this.#now()) this.#pausedUntil.delete(scope)
    const added = open.filter((batch) => !known.has(batch.id))
    for (const [index, batch] of added.entries()) {
      const keyPolls = this.#polls.get(batch.scope) ?? new Map<string, ItemPoll>()
      this.#polls.set(batch.scope, keyPolls.set(batch.id, await this.#createPoll(batch)))
      if (index % POLLS_PER_TURN === 0) await yieldToEventLoop()
    }
  }

  /** Starts at a random item, so that processes sharing a batch rarely claim the same item. */
  async #createPoll(batch: OpenBatch): Promise<ItemPoll> {
    const total = (await this.#queue.readBatch(batch))?.total ?? 0
    const start = Math.floor(this.#random() * total)
    return new ItemPoll(this.#queue, batch, start === 0 ? undefined : toPosition(start - 1))
  }

  /** Starts processing without waiting for it, and resumes the paused batches of the key. */
  wake(scope?: string): void {
    if (this.#stopController.signal.aborted) return
    if (scope !== undefined) this.#pausedUntil.delete(scope)
    this.#isStale = true
    this.#cancelTimer()
    const wasIdle = this.#workers.size === 0
    this.#nextPollAt = Infinity
    while (this.#workers.size < this.#concurrency) this.#startWorker()
    if (wasIdle) this.#keepAwake()
  }

  #keepAwake(): void {
    try {
      this.#options.waitUntil?.(this.#waitForIdle())
    } catch {
      // Some hosts throw if `waitUntil` is called outside a request.
    }
  }

  #startWorker(): void {
    const running = this.#runWorker().finally(() => {
      this.#workers.delete(running)
      if (this.#workers.size > 0) return
      this.#schedule(
        this.#internalErrors > 0 ? BACKOFF_MS * 2 ** this.#internalErrors : this.#isStale ? MIN_DELAY_MS : POLL_MS,
      )
    })
    this.#workers.add(running)
  }

  async #waitForIdle(): Promise<void> {
    while (this.#workers.size > 0) await Promise.all(this.#workers)
  }

  #schedule(maxDelayMs: number): void {
    if (this.#stopController.signal.aborted) return
    this.#cancelTimer()
    const delay = Math.max(MIN_DELAY_MS, Math.min(maxDelayMs, this.#nextPollAt - this.#now()))
    this.#cancelTimer = this.#after(delay, () => this.wake(), { isBackground: true })
  }

  async stop(): Promise<void> {
    this.#stopController.abort()
    this.#cancelTimer()
    this.#processor.cancel()
    await this.#waitForIdle()
  }

  /** Resolves when no more items can currently be processed. */
  work(): Promise<void> {
    this.wake()
    return this.#waitForIdle()
  }
}

/** Unlike store errors, these errors would recur on a retry. */
function isInternalError(cause: unknown): boolean {
  return [TypeError, RangeError, ReferenceError, SyntaxError].some((kind) => cause instanceof kind)
}
