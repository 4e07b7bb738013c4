import { GatewayError } from '../core/errors.ts'
import { type Store, type WriteOptions, quotaOf } from '../core/store.ts'
import {
  type Batch,
  CLEANUP,
  cleanupKey,
  headKey,
  itemsOf,
  LISTED_FOR_MS,
  OPEN,
  parseBatch,
  readCleanupKey,
  RESULTS_FOR_MS,
} from './batch.ts'

/** A batch with unfinished items. */
export interface OpenBatch {
  readonly id: string
  readonly keyId: string
}

/** The dependencies of reading and writing batches. */
export interface BatchStore {
  readonly store: Store
  /** Yields to the event loop, because a local store answers many calls without a pause. */
  readonly pause: () => Promise<void>
}

/** Returns write options for small values, which were counted against the key's quota at the creation of the batch. */
export function smallValueOf(keyId: string): WriteOptions {
  return { quota: quotaOf('batch', keyId), mustFit: true }
}

/** Number of keys per page of a listing. */
const PAGE = 100
const ROUNDS = 50

/** The value of `todo` for an unclaimed item. */
export const UNCLAIMED = '0'

/** Returns the line of a result, without the settlement after it. */
export function lineOf(value: string): string {
  const end = value.indexOf('\n')
  return end < 0 ? value : value.slice(0, end)
}

/** Replaces a batch in one atomic step. Resolves with undefined if the batch does not exist. */
export async function changeBatch(
  store: Store,
  { keyId, id }: OpenBatch,
  make: (batch: Batch) => Batch,
): Promise<Batch | undefined> {
  const key = headKey(keyId, id)
  for (let round = 0; round < ROUNDS; round += 1) {
    const text = await store.get(key)
    const present = parseBatch(text)
    if (present === undefined) return undefined
    const changed = make(present)
    if (changed === present || (await store.swap(key, text, JSON.stringify(changed), smallValueOf(keyId))))
      return changed
  }
  throw new GatewayError('conflict', 'This batch is being changed by other requests. Retry.')
}

/**
 * Deletes a batch and all its values. The caller deletes the cleanup entry afterwards, so that the entry remains if the
 * process dies.
 */
export async function forgetBatch(parts: BatchStore, { keyId, id }: OpenBatch): Promise<void> {
  await parts.store.delete(headKey(keyId, id))
  await parts.store.delete(OPEN + id)
  for (const kind of ['todo', 'request', 'result'] as const) await deleteItems(parts, itemsOf(kind, id))
}

async function deleteItems({ store, pause }: BatchStore, prefix: string): Promise<void> {
  for (;;) {
    const keys = await store.list(prefix, { limit: PAGE })
    if (keys.length === 0) return
    await Promise.all(keys.map((key) => store.delete(key)))
    await pause()
  }
}

/** Number of values that are read together. Small, so that the largest answers fit into memory. */
const READ_TOGETHER = 4

/** Yields the values of all keys with a prefix in order, read on demand. */
export async function* valuesOf({ store, pause }: BatchStore, prefix: string): AsyncGenerator<string, void, undefined> {
  for (let after: string | undefined; ;) {
    const keys = await store.list(prefix, { limit: PAGE, ...(after !== undefined && { after }) })
    if (keys.length === 0) return
    for (let from = 0; from < keys.length; from += READ_TOGETHER) {
      const values = await Promise.all(keys.slice(from, from + READ_TOGETHER).map((key) => store.get(key)))
      yield* values.filter((value) => value !== undefined)
    }
    after = keys.at(-1)
    await pause()
  }
}

const CLEANUP_PAGE = 20
const DAY_MS = 86_400_000

/**
 * Deletes expired data: results 29 days after the creation of their batch, batches after 90 days, and incomplete
 * batches of dead processes. Several processes may run it concurrently.
 */
export async function cleanUpBatches(parts: BatchStore & { readonly now: () => number }): Promise<void> {
  const { store, now } = parts
  for (;;) {
    const keys = await store.list(CLEANUP, { limit: CLEANUP_PAGE })
    const due = keys.filter((key) => readCleanupKey(key).at <= now())
    for (const key of due) await cleanUpBatch(parts, key, now())
    if (due.length < CLEANUP_PAGE) return
  }
}

async function cleanUpBatch(parts: BatchStore, key: string, at: number): Promise<void> {
  const { store } = parts
  const { id } = readCleanupKey(key)
  const keyId = (await store.get(key)) ?? ''
  const batch = parseBatch(await store.get(headKey(keyId, id)))
  const next = batch === undefined ? undefined : nextCleanup(batch, at)
  if (batch === undefined || next === undefined) await forgetBatch(parts, { keyId, id })
  else {
    if (isPast(batch, at)) await archive(parts, batch, at)
    await store.set(cleanupKey(next, id), keyId, smallValueOf(keyId))
  }
  await store.delete(key)
}

function isPast(batch: Batch, at: number): boolean {
  return batch.state === 'ended' && at >= batch.createdAt + RESULTS_FOR_MS
}

/** Returns the time of the next cleanup of a batch, or undefined if all of it is deleted. */
function nextCleanup(batch: Batch, at: number): number | undefined {
  if (batch.state === 'filling') return undefined
  if (at < batch.createdAt + RESULTS_FOR_MS) return batch.createdAt + RESULTS_FOR_MS
  if (batch.state === 'working') return at + DAY_MS
  return at < batch.createdAt + LISTED_FOR_MS ? batch.createdAt + LISTED_FOR_MS : undefined
}

async function archive(parts: BatchStore, batch: Batch, at: number): Promise<void> {
  await changeBatch(parts.store, batch, (present) => ({ ...present, archivedAt: present.archivedAt ?? at }))
  await deleteItems(parts, itemsOf('result', batch.id))
}
