import { type Batch, type OpenBatch, positionOf } from '../batches/batch.ts'
import {
  createItemPoll,
  type ItemClaim,
  type ItemPoll,
  type ItemQueue,
  type ItemResult,
  writeLine,
} from '../batches/item-queue.ts'
import { Cancellation } from '../core/async.ts'
import type { Settlement } from '../core/store.ts'
import { yieldToEventLoop } from '../tokens/yield.ts'
import { answerItem, type KeyById } from './answer-item.ts'
import type { Services } from './services.ts'
import type { Traffic } from './traffic.ts'
import type { Runtime } from '../core/ports.ts'

/** Works off the batches of a store, together with every other process that has the same store. */
export interface BatchWork {
  /**
   * Looks for work now, and again whenever some may be there. A key whose batches were changed is not left to rest.
   * Returns at once.
   */
  wake(keyId?: string): void
  /** The same, and resolves when nothing can be done at the moment: all has ended, waits, or is in other hands. */
  work(): Promise<void>
  /** Ends what is under way: its items can be taken up at once by others. */
  stop(): Promise<void>
}

export interface BatchWorkOptions {
  readonly queue: ItemQueue
  readonly open: (known: (id: string) => OpenBatch | undefined) => Promise<readonly OpenBatch[]>
  readonly tidy: () => Promise<unknown>
  readonly settle: (settlement: Settlement) => Promise<unknown>
  readonly keyById: KeyById
  readonly traffic: Traffic
  readonly services: Services
  /** Items at once. */
  readonly concurrency: number
  /** The lease of an item, in milliseconds; it is renewed three times in its span. */
  readonly leaseMs: number
  /** Keeps a serverless host awake until the promise resolves. */
  readonly waitUntil?: (promise: Promise<unknown>) => void
}

type Task = { readonly kind: 'item'; readonly claim: ItemClaim } | { readonly kind: 'end'; readonly batch: OpenBatch }

/** How often an idle process looks for batches that others made or left. */
const POLL_MS = 15_000
const TIDY_MS = 600_000
/** A store that failed is left alone for so long. */
const FAULT_MS = 5_000
/** After so many faults of the code in a row the wait, then 320 seconds, grows no more. */
const MAX_FAULTS = 6
const SOONEST_MS = 20
/** Batches that are looked at without a pause. */
const PAUSE_AFTER = 100
/** Limits may be raised meanwhile. */
const MAX_REST_MS = 300_000

export function createBatchWork(options: BatchWorkOptions): BatchWork {
  const { queue, services, concurrency, leaseMs } = options
  const { now, after, random } = services.runtime
  const rounds = new Map<string, ItemPoll>()
  /** Keys that a limit has refused, and until when. */
  const resting = new Map<string, number>()
  const hands = new Set<Promise<void>>()
  const running = new Set<Cancellation>()
  const holding = { queue, after, leaseMs, running }
  let stale = true
  /** Faults of the code in a row. */
  let faults = 0
  let soonest = Infinity
  let tidiedAt = -Infinity
  const stopping = new AbortController()
  let cancelAlarm: () => void = () => {}
  let turn: Promise<unknown> = Promise.resolve()

  /** Each hand takes one item after the other, until there is none. */
  async function hand(): Promise<void> {
    try {
      for (;;) {
        await options.traffic.quiet(stopping.signal)
        // An item that is refused at once waits for nothing: without a pause thousands of them would stop the event loop.
        await yieldToEventLoop()
        if (stopping.signal.aborted) return
        const task = await inTurn(nextTask)
        if (task === undefined && stale) continue
        if (task === undefined) return
        await (task.kind === 'end' ? queue.end(task.batch) : workOrGiveUp(task.claim))
        faults = 0
      }
    } catch (cause) {
      rest(cause)
    }
  }

  /** A store that failed gets the step again, from this process or another. After a fault of the code the wait grows. */
  function rest(cause: unknown): void {
    if (isProgrammingError(cause)) {
      faults = Math.min(faults + 1, MAX_FAULTS)
      services.observers.failed('the work on batches failed', cause)
    } else {
      soonest = Math.min(soonest, now() + FAULT_MS)
    }
  }

  /** An item at which the code fails would fail again: its result says so. */
  async function workOrGiveUp(claim: ItemClaim): Promise<void> {
    try {
      await workOn(claim)
    } catch (cause) {
      if (!isProgrammingError(cause)) throw cause
      services.observers.failed('an item of a batch failed', cause, { batch_id: claim.batch.id, item: claim.position })
      await finish(claim, { line: failedLine(claim.position) }, async () => {})
    }
  }

  function inTurn<value>(step: () => Promise<value>): Promise<value> {
    const next = turn.then(step)
    turn = next.catch(() => {})
    return next
  }

  async function nextTask(): Promise<Task | undefined> {
    if (stale) await look()
    const at = now()
    for (const [id, round] of Array.from(rounds)) {
      const restsUntil = resting.get(round.batch.keyId) ?? 0
      if (restsUntil > at) {
        soonest = Math.min(soonest, restsUntil)
        continue
      }
      rounds.delete(id)
      const found = await round.next()
      if (found.kind === 'none') return { kind: 'end', batch: round.batch }
      // Put at the end: the batches take turns.
      rounds.set(id, round)
      if (found.kind === 'item') return found
      soonest = Math.min(soonest, found.until)
    }
    return undefined
  }

  async function look(): Promise<void> {
    stale = false
    if (now() - tidiedAt >= TIDY_MS) {
      tidiedAt = now()
      await options.tidy()
    }
    const open = await options.open((id) => rounds.get(id)?.batch)
    const ids = new Set(open.map(({ id }) => id))
    for (const id of Array.from(rounds.keys())) if (!ids.has(id)) rounds.delete(id)
    for (const [keyId, until] of Array.from(resting)) if (until <= now()) resting.delete(keyId)
    const found = open.filter((batch) => !rounds.has(batch.id))
    for (const [index, batch] of found.entries()) {
      rounds.set(batch.id, await roundOf(batch))
      if (index % PAUSE_AFTER === 0) await yieldToEventLoop()
    }
  }

  /** Begins anywhere, so that processes that share a batch seldom meet. */
  async function roundOf(batch: OpenBatch): Promise<ItemPoll> {
    const total = (await queue.batch(batch))?.total ?? 0
    const start = Math.floor(random() * total)
    return createItemPoll(queue, batch, start === 0 ? undefined : positionOf(start - 1))
  }

  async function workOn(claim: ItemClaim): Promise<void> {
    const batch = await queue.batch(claim.batch)
    if (batch?.state !== 'working') {
      // It is being written, or deleted.
      await queue.release(claim, now() + 1000)
      return
    }
    const done = await queue.result(claim)
    if (done !== undefined) return conclude(claim, done)
    const request = await queue.request(claim)
    const customId = request?.customId ?? claim.position
    const end = batch.cancelledAt !== undefined ? 'canceled' : now() >= batch.expiresAt ? 'expired' : undefined
    if (end !== undefined) return finish(claim, { line: writeLine(customId, end) }, async () => {})
    if (request === undefined) return finish(claim, { line: lostLine(customId) }, async () => {})
    const answer = await holdClaim(claim, holding, (cancellation) =>
      answerItem({ batch, request, cancellation }, services, options.keyById),
    )
    if (answer.retryAfterMs === undefined) return finish(claim, answer.result, answer.commit)
    await answer.commit(true)
    await putOff(claim, batch, answer.retryAfterMs)
  }

  /** What one item was refused, the next ones would be, too: all batches of its key wait. */
  async function putOff(claim: ItemClaim, batch: Batch, ms: number): Promise<void> {
    const until = Math.min(now() + Math.min(ms, MAX_REST_MS), batch.expiresAt)
    resting.set(batch.keyId, Math.max(until, resting.get(batch.keyId) ?? 0))
    await queue.release(claim, now())
  }

  async function finish(
    claim: ItemClaim,
    result: ItemResult,
    commit: (counts: boolean) => Promise<void>,
  ): Promise<void> {
    const placed = (await queue.renew(claim)) ? await queue.finish(claim, result) : undefined
    await commit(placed !== undefined)
    if (placed !== undefined) await queue.close(claim, placed)
  }

  /** The process that put the result in place may have died before it settled. */
  async function conclude(claim: ItemClaim, done: ItemResult): Promise<void> {
    if (done.settlement !== undefined) await options.settle(done.settlement)
    await queue.close(claim, done)
  }

  function wake(keyId?: string): void {
    if (stopping.signal.aborted) return
    if (keyId !== undefined) resting.delete(keyId)
    stale = true
    cancelAlarm()
    if (hands.size === 0) soonest = Infinity
    const hadHands = hands.size > 0
    while (hands.size < concurrency) addHand()
    if (!hadHands) keepAwake()
  }

  /** A host that cannot be kept awake at this moment is no reason not to work. */
  function keepAwake(): void {
    try {
      options.waitUntil?.(idle())
    } catch {
      // Some hosts know of waiting only within a request.
    }
  }

  function addHand(): void {
    const working = hand().finally(() => {
      hands.delete(working)
      if (hands.size === 0) setAlarm(faults > 0 ? FAULT_MS * 2 ** faults : stale ? SOONEST_MS : POLL_MS)
    })
    hands.add(working)
  }

  async function idle(): Promise<void> {
    while (hands.size > 0) await Promise.all(hands)
  }

  function setAlarm(latestMs: number): void {
    if (stopping.signal.aborted) return
    const wait = Math.max(SOONEST_MS, Math.min(latestMs, soonest - now()))
    cancelAlarm = after(wait, () => wake(), { isBackground: true })
  }

  async function stop(): Promise<void> {
    stopping.abort()
    cancelAlarm()
    for (const cancellation of running) cancellation.cancel(new Error('The gateway is being closed.'))
    await idle()
  }

  return {
    wake,
    work: () => {
      wake()
      return idle()
    },
    stop,
  }
}

/** Errors that the same step would throw again. A store fails with others. */
function isProgrammingError(cause: unknown): boolean {
  return [TypeError, RangeError, ReferenceError, SyntaxError].some((kind) => cause instanceof kind)
}

function failedLine(customId: string): string {
  const error = { type: 'api_error', message: 'The gateway failed at this item. It is a fault of the gateway.' }
  return writeLine(customId, 'errored', JSON.stringify({ type: 'error', error, request_id: null }))
}

function lostLine(customId: string): string {
  const error = { type: 'api_error', message: 'The request of this item was lost. Send it again.' }
  return writeLine(customId, 'errored', JSON.stringify({ type: 'error', error, request_id: null }))
}

export interface HoldOptions {
  readonly queue: Pick<ItemQueue, 'renew'>
  readonly after: Runtime['after']
  readonly leaseMs: number
  /** Running work, so that it can be ended. */
  readonly running: Set<Cancellation>
}

/** Renews the lease of an item while its work runs. If the lease is lost, ends the work and discards its result. */
export async function holdClaim<value>(
  claim: ItemClaim,
  { queue, after, leaseMs, running }: HoldOptions,
  work: (cancellation: Cancellation) => Promise<value>,
): Promise<value> {
  const cancellation = new Cancellation()
  let done = false
  let cancel: () => void = () => {}
  const arm = (): void => {
    if (!done) cancel = after(leaseMs / 3, () => void renew().catch(arm), { isBackground: true })
  }
  const renew = async (): Promise<void> => {
    if (await queue.renew(claim)) arm()
    else if (!done) cancellation.cancel(new Error('Another worker has claimed the item.'))
  }
  running.add(cancellation)
  arm()
  try {
    return await work(cancellation)
  } finally {
    done = true
    running.delete(cancellation)
    cancel()
  }
}
