import { LRUCache } from 'lru-cache'

/** Number of consecutive failures after which the embedder is not called for a while. */
const MAX_FAILURES = 3
const REST_MS = 10_000
const MAX_OWNERS = 1000

/** Decides whether the embedder is called. */
export interface EmbedderHealth {
  isResting(owner: string): boolean
  succeeded(owner: string): void
  failed(owner: string): void
}

interface Failures {
  count: number
  restsUntil: number
}

/**
 * Counts consecutive failures per key, so that the texts of one key cannot stop the embedder for the others. If
 * several keys have failures, the embedder is not called for any key.
 */
export function createEmbedderHealth(now: () => number): EmbedderHealth {
  const owners = new LRUCache<string, Failures>({ max: MAX_OWNERS })
  const shared: Failures = { count: 0, restsUntil: 0 }
  const failing = new Set<string>()
  const count = (failures: Failures): void => {
    failures.count += 1
    if (failures.count >= MAX_FAILURES) failures.restsUntil = now() + REST_MS
  }
  return {
    isResting: (owner) => now() < Math.max(shared.restsUntil, owners.peek(owner)?.restsUntil ?? 0),
    succeeded: (owner) => {
      owners.delete(owner)
      failing.clear()
      shared.count = 0
    },
    failed: (owner) => {
      const own = owners.get(owner) ?? { count: 0, restsUntil: 0 }
      owners.set(owner, own)
      count(own)
      if (failing.size < MAX_FAILURES) failing.add(owner)
      if (failing.size > 1) count(shared)
    },
  }
}
