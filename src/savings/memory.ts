import { LRUCache } from 'lru-cache'
import type { Store } from '../core/ports.ts'
import { quotaOf } from '../core/quotas.ts'

/** What tiers remember between the turns of a conversation, each owner's apart. Losing it costs money, never an answer. */
export interface Memory {
  recall(owner: string, key: string): Promise<string | undefined>
  /** As `recall`, but only from this process: for looking at many places. */
  glance(owner: string, key: string): string | undefined
  remember(owner: string, key: string, value: string): Promise<void>
}

/** An hour, as the transcript of tier 2. */
const LIFE_MS = 60 * 60 * 1000
const IN_PROCESS_BYTES = 32 * 1024 * 1024
const GREATEST_VALUE = 256 * 1024

export interface MemoryOptions {
  readonly store: Pick<Store, 'get' | 'set'>
  /** Milliseconds since 1970. */
  readonly now: () => number
}

/** A store with a bounded cache in front. Neither method rejects. */
export function createMemory({ store, now }: MemoryOptions): Memory {
  const near = new LRUCache<string, { readonly value: string; readonly until: number }>({
    maxSize: IN_PROCESS_BYTES,
    sizeCalculation: (entry, key) => 2 * (entry.value.length + key.length) + 64,
  })
  const keyOf = (owner: string, key: string): string => `savings:${owner}:${key}`

  const glance = (owner: string, key: string): string | undefined => {
    const entry = near.get(keyOf(owner, key))
    return entry !== undefined && entry.until > now() ? entry.value : undefined
  }
  return {
    glance,
    async recall(owner, key) {
      const known = glance(owner, key)
      if (known !== undefined) return known
      try {
        const value = await store.get(keyOf(owner, key))
        if (value !== undefined) near.set(keyOf(owner, key), { value, until: now() + LIFE_MS })
        return value
      } catch {
        return undefined
      }
    },
    async remember(owner, key, value) {
      if (value.length > GREATEST_VALUE) return
      near.set(keyOf(owner, key), { value, until: now() + LIFE_MS })
      try {
        await store.set(keyOf(owner, key), value, { ttlMs: LIFE_MS, quota: quotaOf('savings', owner) })
      } catch {
        // Another process computes what it does not know.
      }
    },
  }
}
