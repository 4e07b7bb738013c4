import type { SemanticCacheOptions } from '../cache/cache-options.ts'
import type { SemanticCache } from '../cache/semantic-cache.ts'
import type { CacheStatistics } from '../cache/cache-parts.ts'
import { lazy } from '../core/async.ts'

const NO_STATISTICS: CacheStatistics = {
  hitRate: 0,
  totalRequests: 0,
  hits: 0,
  misses: 0,
  exactHits: 0,
  refused: {},
  failures: 0,
  entries: 0,
  bytes: 0,
}

/** Returns the semantic cache, which is loaded at its first look-up. Its options are checked now. */
export function createCache(options: SemanticCacheOptions): SemanticCache {
  let loaded: SemanticCache | undefined
  const load = lazy(async () => {
    const { createSemanticCache } = await import('../cache/semantic-cache.ts')
    return (loaded = createSemanticCache(options))
  })
  return {
    lookUp: (question) => loaded?.lookUp(question) ?? load().then((cache) => cache.lookUp(question)),
    peek: (question) => loaded?.peek(question) ?? load().then((cache) => cache.peek(question)),
    reportWrongHit: (id) => loaded?.reportWrongHit(id),
    clear: (which) => loaded?.clear(which),
    stats: () => loaded?.stats() ?? NO_STATISTICS,
    flush: async () => loaded?.flush(),
  }
}
