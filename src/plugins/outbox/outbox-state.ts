/** Decides which records of a log are delivered next, and what a delivery changes. Pure, without access to the store. */
import { backoffMs, LEASE_MS } from '../../core/delivery.ts'
import type { DaySum, OutboxState, StoredRecord } from '../../governance/outbox.ts'
import type { DeliveryResult } from '../../kernel/plugin.ts'

/** A record with its place in the log. `record` is undefined for one of another version, which is given up. */
export interface LoggedRecord {
  readonly cursor: string
  readonly record: StoredRecord | undefined
}

/** A record that is given up. */
export interface GivenUp {
  readonly record: StoredRecord
  readonly reason: string
}

/** How many days of sums a state has. */
const MAX_DAYS = 70

/** A batch does not extend beyond the records that were tried, so that all its records were first tried together. */
export function batchSize({ attempts, tried }: OutboxState, maxRecords: number): number {
  // A record that always fails must not prevent the delivery of those before it.
  const size = Math.max(1, Math.floor(maxRecords / 2 ** Math.min(attempts, 20)))
  return tried > 0 ? Math.min(tried, size) : size
}

/** The state while a process delivers the next `count` records. */
export function claim(state: OutboxState, count: number, now: number): OutboxState {
  return {
    ...state,
    ...(state.tried === 0 && { tried: count, firstTriedAt: now }),
    nextAt: now + LEASE_MS,
    version: state.version + 1,
  }
}

export interface DeliveryAttempt {
  readonly batch: readonly LoggedRecord[]
  /** A string: the attempt failed as a whole, for this reason. */
  readonly result: DeliveryResult | string
  readonly now: number
  readonly random: number
  readonly giveUpAfterMs: number
}

export interface AfterDelivery {
  readonly state: OutboxState
  readonly givenUp: readonly GivenUp[]
}

/** The state after an attempt to deliver the first records after the cursor. */
export function afterAttempt(
  claimed: OutboxState,
  { batch, result, now, random, giveUpAfterMs }: DeliveryAttempt,
): AfterDelivery {
  const done = new Set(claimed.done)
  const failures = failuresOf(result)
  const rejected = reasonsById(typeof result === 'string' ? [] : (result.rejected ?? []))
  const givenUp: GivenUp[] = []
  const delivered: StoredRecord[] = []
  const failingSince = claimed.failingSince ?? now
  let passed = 0
  for (const { record } of batch) {
    if (record !== undefined && !done.has(record.id)) {
      const failure = failures(record.id)
      const reason =
        rejected.get(record.id) ??
        (passed === 0 && failure !== undefined && now - failingSince >= giveUpAfterMs
          ? `not delivered within ${giveUpAfterMs / 1000} seconds: ${failure}`
          : undefined)
      if (reason !== undefined) givenUp.push({ record, reason })
      else if (failure !== undefined) break
      else delivered.push(record)
    } else if (record !== undefined) {
      delivered.push(record)
    }
    passed += 1
  }
  const rest = batch.slice(passed)
  const cursor = batch[passed - 1]?.cursor
  for (const { record } of batch.slice(0, passed)) if (record !== undefined) done.delete(record.id)
  // A record that was rejected behind one that failed is tried again, so that dead letters have the order of the log.
  for (const { record } of rest) {
    if (record !== undefined && failures(record.id) === undefined && !rejected.has(record.id)) done.add(record.id)
  }
  const hasFailed = rest.length > 0
  const attempts = hasFailed ? claimed.attempts + 1 : 0
  const { failingSince: _since, cursor: earlier, ...unchanged } = claimed
  const next = cursor ?? earlier
  return {
    state: {
      ...unchanged,
      ...(next !== undefined && { cursor: next }),
      count: claimed.count + passed,
      delivered: addDays(claimed.delivered, delivered),
      tried: Math.max(0, claimed.tried - passed),
      done: Array.from(done),
      attempts,
      ...(hasFailed && { failingSince: passed === 0 ? failingSince : now }),
      nextAt: hasFailed ? now + backoffMs(attempts, random) : 0,
    },
    givenUp,
  }
}

function failuresOf(result: DeliveryResult | string): (id: string) => string | undefined {
  if (typeof result === 'string') return () => result
  const retries = reasonsById(result.retry ?? [])
  return (id) => retries.get(id)
}

function reasonsById(failures: NonNullable<DeliveryResult['retry']>): ReadonlyMap<string, string> {
  return new Map(failures.map(({ id, reason }) => [id, reason]))
}

function addDays(
  delivered: OutboxState['delivered'],
  records: readonly StoredRecord[],
): Readonly<Record<string, DaySum>> {
  if (records.length === 0) return delivered
  const sums = new Map<number, DaySum>(Object.entries(delivered).map(([day, sum]) => [Number(day), sum]))
  for (const { day, billed } of records) {
    const [count, amount] = sums.get(day) ?? [0, 0]
    sums.set(day, [count + 1, amount + billed])
  }
  const latest = Array.from(sums).toSorted(([left], [right]) => right - left)
  return Object.fromEntries(latest.slice(0, MAX_DAYS))
}
