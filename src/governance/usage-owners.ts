/**
 * Who had a record and still has usage in reports: customers and keys that were deleted. An entry is removed when the last
 * of their tallies has expired. Entries have no TTL, because a full store may drop values that have one.
 */
import type { Store } from '../core/store.ts'
import { DAILY_RETENTION_MS } from './usage-rows.ts'

/** The owner of the tallies follows. The value is the time at which the entry ends. */
export const USAGE_OWNER_PREFIX = 'usage-owner:'
/** Entries in the order of their ends. The time and the owner follow. */
const END_PREFIX = 'usage-owner-end:'
const TIME_DIGITS = 15

/** Requests that are running at a deletion are settled later. */
const MARGIN_MS = 2 * 86_400_000
const MAX_REMOVED = 20

type OwnerStore = Pick<Store, 'get' | 'set' | 'swap' | 'delete' | 'list'>

export async function keepUsageOwner(store: OwnerStore, owner: string, now: number): Promise<void> {
  const endsAt = Math.ceil(now + DAILY_RETENTION_MS + MARGIN_MS)
  await store.set(`${END_PREFIX}${String(endsAt).padStart(TIME_DIGITS, '0')}:${owner}`, '')
  await store.set(USAGE_OWNER_PREFIX + owner, String(endsAt))
  await removeEndedOwners(store, now)
}

/** Removes a bounded number of entries, those that ended first. */
export async function removeEndedOwners(store: OwnerStore, now: number): Promise<void> {
  for (const key of await store.list(END_PREFIX, { limit: MAX_REMOVED })) {
    const time = key.slice(END_PREFIX.length, END_PREFIX.length + TIME_DIGITS)
    if (Number(time) > now) return
    const entry = USAGE_OWNER_PREFIX + key.slice(END_PREFIX.length + TIME_DIGITS + 1)
    const end = await store.get(entry)
    // A later deletion of the same owner has an end of its own.
    if (end !== undefined && Number(end) <= now) await store.swap(entry, end, undefined)
    await store.delete(key)
  }
}
