import { LISTED_FOR_MS, parseBatch, RESULTS_FOR_MS, type Batch } from './batch.ts'
import { DUE, dueKey, headKey, itemsOf, readDueKey } from './batch-keys.ts'
import { changeBatch, deleteItems, forgetBatch, smallValueOf, type BatchStore } from './batch-values.ts'

const PAGE = 20
const DAY_MS = 86_400_000

/**
 * Tidies away what has become due: results 29 days after their batch was made, the batch itself after 90, and what a
 * process left that died while it wrote one. Any number of processes may do it at once.
 */
export async function tidyBatches(parts: BatchStore & { readonly now: () => number }): Promise<void> {
  const { store, now } = parts
  for (;;) {
    const keys = await store.list(DUE, { limit: PAGE })
    const due = keys.filter((key) => readDueKey(key).at <= now())
    for (const key of due) await tidyOne(parts, key, now())
    if (due.length < PAGE) return
  }
}

async function tidyOne(parts: BatchStore, key: string, at: number): Promise<void> {
  const { store } = parts
  const { id } = readDueKey(key)
  const keyId = (await store.get(key)) ?? ''
  const batch = parseBatch(await store.get(headKey(keyId, id)))
  const next = batch === undefined ? undefined : nextLook(batch, at)
  if (batch === undefined || next === undefined) await forgetBatch(parts, { keyId, id })
  else {
    if (isPast(batch, at)) await archive(parts, batch, at)
    await store.set(dueKey(next, id), keyId, smallValueOf(keyId))
  }
  await store.delete(key)
}

function isPast(batch: Batch, at: number): boolean {
  return batch.state === 'ended' && at >= batch.createdAt + RESULTS_FOR_MS
}

/** When to look at a batch again; undefined when all of it is removed. */
function nextLook(batch: Batch, at: number): number | undefined {
  if (batch.state === 'filling') return undefined
  if (at < batch.createdAt + RESULTS_FOR_MS) return batch.createdAt + RESULTS_FOR_MS
  if (batch.state === 'working') return at + DAY_MS
  return at < batch.createdAt + LISTED_FOR_MS ? batch.createdAt + LISTED_FOR_MS : undefined
}

async function archive(parts: BatchStore, batch: Batch, at: number): Promise<void> {
  await changeBatch(parts.store, batch, (present) => ({ ...present, archivedAt: present.archivedAt ?? at }))
  await deleteItems(parts, itemsOf('result', batch.id))
}
