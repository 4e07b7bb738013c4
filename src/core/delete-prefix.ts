import type { Store } from './store.ts'

const PAGE_SIZE = 100

/**
 * Deletes all keys with a prefix, some at a time. Keys that are written meanwhile may remain.
 *
 * @param pause Yields to the event loop. Calls to a local store do not yield.
 */
export async function deletePrefix(
  store: Pick<Store, 'list' | 'delete'>,
  prefix: string,
  pause: () => Promise<void>,
): Promise<void> {
  for (let after: string | undefined; ;) {
    const keys = await store.list(prefix, { limit: PAGE_SIZE, ...(after !== undefined && { after }) })
    await Promise.all(keys.map((key) => store.delete(key)))
    if (keys.length < PAGE_SIZE) return
    after = keys.at(-1)
    await pause()
  }
}
