import { GatewayError } from '../core/errors.ts'
import type { Store } from '../core/ports.ts'
import { parseBatch, type Batch } from './batch.ts'
import { headKey, itemsOf, OPEN } from './batch-keys.ts'

/** A batch with work left. */
export interface OpenBatch {
  readonly id: string
  readonly keyId: string
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
    if (changed === present || (await store.swap(key, text, JSON.stringify(changed)))) return changed
  }
  throw new GatewayError('conflict', 'This batch is being changed by others at the moment. Try again.')
}

/** Deletes a batch and everything of it; the note of when to tidy up goes last, so that a process that dies leaves it. */
export async function forgetBatch(store: Store, keyId: string, id: string): Promise<void> {
  await store.delete(headKey(keyId, id))
  await store.delete(OPEN + id)
  for (const kind of ['todo', 'request', 'result'] as const) await deleteItems(store, itemsOf(kind, id))
}

export async function deleteItems(store: Store, prefix: string): Promise<void> {
  for (;;) {
    const keys = await store.list(prefix, { limit: PAGE })
    if (keys.length === 0) return
    await Promise.all(keys.map((key) => store.delete(key)))
  }
}

/** So few values at once that even the largest answers do not fill the memory. */
const AT_ONCE = 4

/** The values of all keys with a prefix, in order, read as they are taken. */
export async function* valuesOf(store: Store, prefix: string): AsyncGenerator<string, void, undefined> {
  for (let after: string | undefined; ;) {
    const keys = await store.list(prefix, { limit: PAGE, ...(after !== undefined && { after }) })
    if (keys.length === 0) return
    for (let from = 0; from < keys.length; from += AT_ONCE) {
      const values = await Promise.all(keys.slice(from, from + AT_ONCE).map((key) => store.get(key)))
      yield* values.filter((value) => value !== undefined)
    }
    after = keys.at(-1)
  }
}
