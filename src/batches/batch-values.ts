import { GatewayError } from '../core/errors.ts'
import type { Store, WriteOptions } from '../core/ports.ts'
import { quotaOf } from '../core/quotas.ts'
import { parseBatch, type Batch } from './batch.ts'
import { headKey, itemsOf, OPEN } from './batch-keys.ts'

/** A batch with work left. */
export interface OpenBatch {
  readonly id: string
  readonly keyId: string
}

/** What the values of a batch are read and written with. */
export interface BatchStore {
  readonly store: Store
  /** Serves the event loop: a local store answers many calls without a pause. */
  readonly pause: () => Promise<void>
}

/** For small values of a batch that the quota of its key took when it was created. */
export function smallValueOf(keyId: string): WriteOptions {
  return { quota: quotaOf('batch', keyId), mustFit: true }
}

/** Keys that are listed at once. */
const PAGE = 100
const ROUNDS = 50

/** The value of `todo` for an item that anyone may take. */
export const FREE = '0'

/** A result's line; what follows it is for the books. */
export function lineOf(value: string): string {
  const end = value.indexOf('\n')
  return end < 0 ? value : value.slice(0, end)
}

/** Replaces a batch in one atomic step; undefined when there is none. */
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
  throw new GatewayError('conflict', 'This batch is being changed by others at the moment. Try again.')
}

/** Deletes a batch and everything of it; the note of when to tidy up goes last, so that a process that dies leaves it. */
export async function forgetBatch(parts: BatchStore, { keyId, id }: OpenBatch): Promise<void> {
  await parts.store.delete(headKey(keyId, id))
  await parts.store.delete(OPEN + id)
  for (const kind of ['todo', 'request', 'result'] as const) await deleteItems(parts, itemsOf(kind, id))
}

export async function deleteItems({ store, pause }: BatchStore, prefix: string): Promise<void> {
  for (;;) {
    const keys = await store.list(prefix, { limit: PAGE })
    if (keys.length === 0) return
    await Promise.all(keys.map((key) => store.delete(key)))
    await pause()
  }
}

/** So few values at once that even the largest answers do not fill the memory. */
const AT_ONCE = 4

/** The values of all keys with a prefix, in order, read as they are taken. */
export async function* valuesOf({ store, pause }: BatchStore, prefix: string): AsyncGenerator<string, void, undefined> {
  for (let after: string | undefined; ;) {
    const keys = await store.list(prefix, { limit: PAGE, ...(after !== undefined && { after }) })
    if (keys.length === 0) return
    for (let from = 0; from < keys.length; from += AT_ONCE) {
      const values = await Promise.all(keys.slice(from, from + AT_ONCE).map((key) => store.get(key)))
      yield* values.filter((value) => value !== undefined)
    }
    after = keys.at(-1)
    await pause()
  }
}
