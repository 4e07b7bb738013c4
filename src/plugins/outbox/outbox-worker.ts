/**
 * Appends the records of plugins to settlements, and delivers them. A process claims a log by a swap of its state, which is
 * also a lease: another process continues with the same records if the first one is killed. The state and the position in
 * the log are one value, so each record is counted once, although it may be delivered more than once.
 */
import { BackgroundLoop } from '../../core/background-loop.ts'
import { GatewayError } from '../../core/errors.ts'
import { isJsonObject } from '../../core/json.ts'
import { mapInSlices } from '../../core/map-in-slices.ts'
import type { Runtime } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import {
  type DeadLetter,
  deadLetterPrefix,
  deadLetterQuota,
  type OutboxState,
  outboxLogs,
  parseState,
  parseStoredRecord,
  RECORDS,
  stateKeyOf,
} from '../../governance/outbox.ts'
import type { RequestUsage, SettlementRecord } from '../../governance/reservation.ts'
import type { Exchange } from '../../kernel/exchange.ts'
import type { FinishedRequest } from '../../kernel/finished-request.ts'
import type { DeliveryResult, FailedDelivery, OutboxRecord, Plugin } from '../../kernel/plugin.ts'
import type { EventLog } from '../../kernel/services.ts'
import { entryFor, type OutboxPlugin, settledRequest } from './outbox-entries.ts'
import { afterAttempt, batchSize, claim, type GivenUp, type LoggedRecord } from './outbox-state.ts'

export interface OutboxOptions {
  readonly plugins: readonly Plugin[] | undefined
  readonly store: Store
  readonly runtime: Pick<Runtime, 'now' | 'after' | 'random'>
  readonly log: EventLog
}

interface WorkerOptions extends OutboxOptions {
  readonly outboxes: readonly OutboxPlugin[]
}

/** Interval at which a process looks for the records of others. */
const POLL_MS = 15_000
/** How soon a log is tried again that another process has changed in between. */
const CONTENDED_MS = 250
/** Interval at which the count of appended records is compared with the log. */
const COUNT_INTERVAL_MS = 30_000
/** A difference must last as long before it is reported, because some stores show a record later than its count. */
const LOSS_CHECK_MS = 60_000
const LOGS_AT_ONCE = 4

const DEFAULT_MAX_RECORDS = 100
const DEFAULT_DELAY_MS = 1_000
const DEFAULT_TIMEOUT_MS = 10_000
/** Must be less than the lease, together with the longest `timeoutMs`. */
const GRACE_MS = 1_000
const DEFAULT_GIVE_UP_MS = 3 * 86_400_000

/** A log of an outbox. */
interface WorkedLog {
  readonly plugin: OutboxPlugin
  readonly log: string
  /** When this process looks at the log again. A settlement brings it forward. */
  nextAt: number
  countedAt: number
  /** A loss that must be confirmed. */
  loss: { readonly count: number; readonly since: number } | undefined
}

export class OutboxWorker {
  readonly #options: WorkerOptions
  readonly #loop: BackgroundLoop
  readonly #wakeMs: number
  readonly #logs: readonly WorkedLog[]
  readonly #running = new Set<AbortController>()
  #failedRecords = 0

  constructor(options: WorkerOptions) {
    this.#options = options
    const delays = options.outboxes.map(({ outbox }) => outbox.delayMs ?? DEFAULT_DELAY_MS)
    this.#wakeMs = Math.max(1, Math.min(...delays))
    this.#loop = new BackgroundLoop({ after: options.runtime.after, run: () => this.#run(), wakeMs: this.#wakeMs })
    this.#logs = options.outboxes.flatMap((plugin) =>
      outboxLogs(plugin.name).map((log) => ({ plugin, log, nextAt: 0, countedAt: -Infinity, loss: undefined })),
    )
  }

  start(): void {
    this.#loop.schedule(0)
  }

  /** Deliveries are stopped. The next process continues with them. */
  close(): Promise<void> {
    const closed = this.#loop.close()
    for (const controller of this.#running) controller.abort(new Error('The gateway was closed during the delivery.'))
    return closed
  }

  /** Never throws. */
  entriesOf(
    finished: FinishedRequest,
    exchange: Pick<Exchange, 'caller' | 'reservation'>,
    used: RequestUsage,
  ): readonly SettlementRecord[] {
    const { reservation } = exchange
    if (reservation === undefined) return []
    const entries: SettlementRecord[] = []
    const request = settledRequest(finished, exchange, reservation, used)
    for (const plugin of this.#options.outboxes) {
      try {
        const entry = entryFor(plugin, request, reservation.reservedAt)
        if (entry === undefined) continue
        entries.push(entry)
        this.#wake(entry.log)
      } catch (cause) {
        this.#failedRecords += 1
        this.#options.log.failure('a plugin made no record of a settlement', cause, {
          plugin: plugin.name,
          hook: 'outbox.record',
          request_id: request.id,
          billed_nano_usd: request.billed,
          dropped: this.#failedRecords,
        })
      }
    }
    return entries
  }

  #wake(log: string): void {
    const worked = this.#logs.find((one) => one.log === log)
    if (worked === undefined) return
    const { delayMs = DEFAULT_DELAY_MS } = worked.plugin.outbox
    worked.nextAt = Math.min(worked.nextAt, this.#now() + Math.max(0, delayMs - this.#wakeMs))
    this.#loop.wake()
  }

  #now(): number {
    return this.#options.runtime.now()
  }

  /** Never rejects. Resolves with the milliseconds until the next run. */
  async #run(): Promise<number> {
    const due = this.#logs.filter(({ nextAt }) => nextAt <= this.#now())
    await mapInSlices(due, LOGS_AT_ONCE, (worked) => this.#work(worked))
    const nextAt = Math.min(...this.#logs.map((worked) => worked.nextAt))
    return Math.max(1, Math.min(POLL_MS, nextAt - this.#now()))
  }

  async #work(worked: WorkedLog): Promise<void> {
    // A settlement during the work may bring the next run forward.
    worked.nextAt = Infinity
    let nextAt: number
    try {
      nextAt = await this.#deliverAll(worked)
    } catch (cause) {
      this.#options.log.failure('records could not be delivered; they are delivered later', cause, {
        plugin: worked.plugin.name,
      })
      nextAt = this.#now() + POLL_MS
    }
    worked.nextAt = Math.min(worked.nextAt, nextAt)
  }

  /** Delivers batches until none is due. Resolves with the time of the next run. */
  async #deliverAll(worked: WorkedLog): Promise<number> {
    for (;;) {
      const nextAt = await this.#deliverNext(worked)
      if (nextAt !== undefined) return nextAt
      if (this.#loop.isClosed) return Infinity
    }
  }

  /** Resolves with the time of the next run, or with undefined if more records are due now. */
  async #deliverNext(worked: WorkedLog): Promise<number | undefined> {
    const { store } = this.#options
    const { plugin, log } = worked
    const key = stateKeyOf(log)
    const value = await store.get(key)
    const state = parseState(value)
    const now = this.#now()
    if (state.nextAt > now) return Math.min(state.nextAt, now + POLL_MS)
    const size = batchSize(state, plugin.outbox.maxRecords ?? DEFAULT_MAX_RECORDS)
    const appended = await this.#countIfDue(worked)
    const { cursor } = state
    const batch = await this.#read(log, cursor, size)
    if (batch.length < size && appended !== undefined) {
      const lost = this.#confirmLoss(worked, state, appended - state.count - batch.length)
      // The state is read again, because it has changed.
      if (lost > state.lost) return this.#reportLoss(worked, { key, value, state, lost })
    }
    if (batch.length === 0) return now + POLL_MS
    const claimed = claim(state, batch.length, now)
    const claimedValue = JSON.stringify(claimed)
    if (!(await store.swap(key, value, claimedValue))) return this.#now() + CONTENDED_MS
    const { firstTriedAt, done } = claimed
    const records = batch.flatMap(({ record }) => (record === undefined || done.includes(record.id) ? [] : [record]))
    const { giveUpAfterMs = DEFAULT_GIVE_UP_MS } = plugin.outbox
    const result = records.length === 0 ? {} : await this.#deliver(plugin, records, firstTriedAt)
    const { now: clock, random } = this.#options.runtime
    const after = afterAttempt(claimed, { batch, result, now: clock(), random: random(), giveUpAfterMs })
    await this.#keepDeadLetters(plugin, after.givenUp)
    const isOwner = await store.swap(key, claimedValue, JSON.stringify(after.state))
    if (!isOwner) return this.#now() + CONTENDED_MS
    return after.state.nextAt > 0 ? after.state.nextAt : undefined
  }

  async #read(log: string, cursor: string | undefined, limit: number): Promise<readonly LoggedRecord[]> {
    const entries = await this.#options.store.entries(log, { limit, ...(cursor !== undefined && { after: cursor }) })
    const read = entries.map((entry) => ({ cursor: entry.cursor, record: parseStoredRecord(entry.value) }))
    const unknown = read.filter(({ record }) => record === undefined).length
    if (unknown > 0)
      this.#options.log.failure('records skipped', new Error(`${log} has records of an unknown form.`), {
        records: unknown,
      })
    return read
  }

  /** Resolves with a failure as text. */
  async #deliver(
    { name, outbox }: OutboxPlugin,
    records: readonly OutboxRecord[],
    firstTriedAt: number,
  ): Promise<DeliveryResult | string> {
    const { runtime, log } = this.#options
    const { timeoutMs = DEFAULT_TIMEOUT_MS } = outbox
    const controller = new AbortController()
    const createError = (): Error => new Error(`deliver did not return within ${timeoutMs} ms.`)
    const cancelTimer = runtime.after(timeoutMs, () => controller.abort(createError()))
    const passed = records.map(({ id, value }) => Object.freeze({ id, value }))
    const options = { firstTriedAt, now: runtime.now(), signal: controller.signal }
    this.#running.add(controller)
    try {
      const expired = new Promise<never>((_resolve, reject) => {
        controller.signal.addEventListener('abort', () => {
          runtime.after(GRACE_MS, () => reject(controller.signal.reason))
        })
      })
      const delivering = (async () => outbox.deliver(Object.freeze(passed), options))()
      const checked = checkResult(await Promise.race([delivering, expired]))
      const [failed] = checked.retry ?? []
      if (failed !== undefined) {
        log.failure('a plugin did not deliver all records; it is tried again', new Error(failed.reason), {
          plugin: name,
          hook: 'outbox.deliver',
          request_id: failed.id,
          records: checked.retry?.length ?? 0,
        })
      }
      return checked
    } catch (cause) {
      log.failure('a plugin failed', cause, { plugin: name, hook: 'outbox.deliver', records: records.length })
      return reasonOf(cause)
    } finally {
      this.#running.delete(controller)
      cancelTimer()
    }
  }

  /** Written before the cursor moves, under the id of the record, so that a repetition changes nothing. */
  async #keepDeadLetters({ name }: OutboxPlugin, givenUp: readonly GivenUp[]): Promise<void> {
    const { store, log } = this.#options
    const prefix = deadLetterPrefix(name)
    for (const { record, reason } of givenUp) {
      const fields = { plugin: name, request_id: record.id, billed_nano_usd: record.billed }
      log.failure('a record was given up; it is a dead letter', new Error(reason), fields)
      const letter: DeadLetter = { record, reason, at: this.#now() }
      try {
        await store.swap(prefix + record.id, undefined, JSON.stringify(letter), { quota: deadLetterQuota(name) })
      } catch (cause) {
        // Later records must not wait until dead letters are removed. The log has what was lost.
        if (!isQuotaExceeded(cause)) throw cause
        log.failure('a dead letter was lost, because too many are stored', cause, fields)
      }
    }
  }

  /** Resolves with the number of appended records, now and then. Must be called before the log is read. */
  async #countIfDue(worked: WorkedLog): Promise<number | undefined> {
    if (this.#now() - worked.countedAt < COUNT_INTERVAL_MS) return undefined
    worked.countedAt = this.#now()
    const [tally] = await this.#options.store.tallies([worked.log])
    return tally?.[RECORDS] ?? 0
  }

  /** Returns the number of lost records. Those of a new loss are counted after they have been missing for a minute. */
  #confirmLoss(worked: WorkedLog, state: OutboxState, missing: number): number {
    const now = this.#now()
    const earlier = worked.loss
    const isNew = missing > state.lost
    worked.loss = isNew
      ? { count: Math.min(missing, earlier?.count ?? missing), since: earlier?.since ?? now }
      : undefined
    return worked.loss !== undefined && now - worked.loss.since >= LOSS_CHECK_MS ? worked.loss.count : state.lost
  }

  async #reportLoss(
    worked: WorkedLog,
    { key, value, state, lost }: { key: string; value: string | undefined; state: OutboxState; lost: number },
  ): Promise<undefined> {
    worked.loss = undefined
    const isFirst = await this.#options.store.swap(key, value, JSON.stringify({ ...state, lost }))
    if (!isFirst) return
    const error = new Error(
      'Records were dropped from the store before they were delivered. Raise maxStored, or fix deliver.',
    )
    const fields = { plugin: worked.plugin.name, records: lost - state.lost }
    this.#options.log.failure('records lost', error, fields)
  }
}

const MAX_REASON_LENGTH = 300

function reasonOf(cause: unknown): string {
  return (cause instanceof Error ? cause.message : String(cause)).slice(0, MAX_REASON_LENGTH)
}

/** Throws for a result of another form. */
function checkResult(result: unknown): DeliveryResult {
  if (result === undefined) return {}
  if (!isJsonObject(result)) throw new Error('deliver: expected an object with retry and rejected, or nothing.')
  return { retry: checkFailures(result['retry']), rejected: checkFailures(result['rejected']) }
}

function checkFailures(failures: unknown = []): readonly FailedDelivery[] {
  const isFailure = (failure: unknown): failure is FailedDelivery =>
    isJsonObject(failure) && typeof failure['id'] === 'string' && typeof failure['reason'] === 'string'
  if (!Array.isArray(failures) || !failures.every(isFailure))
    throw new Error('deliver: expected lists of { id, reason } in retry and rejected.')
  return failures.map(({ id, reason }) => ({ id, reason: reason.slice(0, MAX_REASON_LENGTH) }))
}

function isQuotaExceeded(cause: unknown): boolean {
  return GatewayError.is(cause) && cause.kind === 'quota-exceeded'
}
