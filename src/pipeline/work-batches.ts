import type { Batch } from '../batches/batch.ts'
import type { OpenBatch } from '../batches/batch-values.ts'
import { writeLine, type Claim, type ItemQueue, type ItemResult } from '../batches/item-queue.ts'
import { createRound, type Round } from '../batches/round.ts'
import { placeOf } from '../batches/batch-keys.ts'
import type { Settlement } from '../core/ports.ts'
import { answerItem, type KeyById } from './answer-item.ts'
import { holdClaim } from './hold-claim.ts'
import type { Parts } from './stages.ts'
import type { Traffic } from './traffic.ts'

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
  readonly open: () => Promise<readonly OpenBatch[]>
  readonly tidy: () => Promise<unknown>
  readonly settle: (settlement: Settlement) => Promise<unknown>
  readonly keyById: KeyById
  readonly traffic: Traffic
  readonly parts: Parts
  /** Items at once. */
  readonly concurrency: number
  /** The lease of an item, in milliseconds; it is renewed three times in its span. */
  readonly leaseMs: number
  /** Keeps a serverless host awake until the promise resolves. */
  readonly waitUntil?: (promise: Promise<unknown>) => void
}

type Task = { readonly kind: 'item'; readonly claim: Claim } | { readonly kind: 'end'; readonly batch: OpenBatch }

/** How often an idle process looks for batches that others made or left. */
const POLL_MS = 15_000
const TIDY_MS = 600_000
/** A store that failed is left alone for so long. */
const FAULT_MS = 5_000
const SOONEST_MS = 20
/** Limits may be raised meanwhile. */
const LONGEST_REST_MS = 300_000

export function createBatchWork(options: BatchWorkOptions): BatchWork {
  const { queue, parts, concurrency, leaseMs } = options
  const { now, after, random } = parts.runtime
  const rounds = new Map<string, Round>()
  /** Keys that a limit has refused, and until when. */
  const resting = new Map<string, number>()
  const hands = new Set<Promise<void>>()
  const running = new Set<AbortController>()
  const holding = { queue, after, leaseMs, running }
  let stale = true
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
        if (stopping.signal.aborted) return
        const task = await inTurn(nextTask)
        if (task === undefined && stale) continue
        if (task === undefined) return
        await (task.kind === 'end' ? queue.end(task.batch) : workOn(task.claim))
      }
    } catch {
      // The store failed: every step can be made again, by this process or another.
      soonest = Math.min(soonest, now() + FAULT_MS)
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
    const open = await options.open()
    const ids = new Set(open.map(({ id }) => id))
    for (const id of Array.from(rounds.keys())) if (!ids.has(id)) rounds.delete(id)
    for (const [keyId, until] of Array.from(resting)) if (until <= now()) resting.delete(keyId)
    for (const batch of open) if (!rounds.has(batch.id)) rounds.set(batch.id, await roundOf(batch))
  }

  /** Begins anywhere, so that processes that share a batch seldom meet. */
  async function roundOf(batch: OpenBatch): Promise<Round> {
    const total = (await queue.batch(batch))?.total ?? 0
    const start = Math.floor(random() * total)
    return createRound(queue, batch, start === 0 ? undefined : placeOf(start - 1))
  }

  async function workOn(claim: Claim): Promise<void> {
    const batch = await queue.batch(claim.batch)
    if (batch?.state !== 'working') {
      // It is being written, or deleted.
      await queue.release(claim, now() + 1000)
      return
    }
    const done = await queue.result(claim)
    if (done !== undefined) return conclude(claim, done)
    const request = await queue.request(claim)
    const customId = request?.customId ?? claim.place
    const end = batch.cancelledAt !== undefined ? 'canceled' : now() >= batch.expiresAt ? 'expired' : undefined
    if (end !== undefined) return finish(claim, { line: writeLine(customId, end) }, async () => {})
    if (request === undefined) return finish(claim, { line: lostLine(customId) }, async () => {})
    const answer = await holdClaim(claim, holding, (controller) => {
      const abort = (reason: unknown): void => controller.abort(reason)
      return answerItem({ batch, request, signal: controller.signal, abort }, parts, options.keyById)
    })
    if (answer.againAfterMs === undefined) return finish(claim, answer.result, answer.commit)
    await answer.commit(true)
    await putOff(claim, batch, answer.againAfterMs)
  }

  /** What one item was refused, the next ones would be, too: all batches of its key wait. */
  async function putOff(claim: Claim, batch: Batch, ms: number): Promise<void> {
    const until = Math.min(now() + Math.min(ms, LONGEST_REST_MS), batch.expiresAt)
    resting.set(batch.keyId, Math.max(until, resting.get(batch.keyId) ?? 0))
    await queue.release(claim, now())
  }

  async function finish(claim: Claim, result: ItemResult, commit: (counts: boolean) => Promise<void>): Promise<void> {
    const counts = (await queue.renew(claim)) && (await queue.finish(claim, result))
    await commit(counts)
    if (counts) await queue.close(claim, result)
  }

  /** The process that put the result in place may have died before it settled. */
  async function conclude(claim: Claim, done: ItemResult): Promise<void> {
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
      if (hands.size === 0) setAlarm(stale ? SOONEST_MS : POLL_MS)
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
    for (const controller of running) controller.abort(new Error('The gateway is being closed.'))
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

function lostLine(customId: string): string {
  const error = { type: 'api_error', message: 'The request of this item was lost. Send it again.' }
  return writeLine(customId, 'errored', JSON.stringify({ type: 'error', error, request_id: null }))
}
