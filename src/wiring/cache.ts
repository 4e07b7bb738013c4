import { checkCacheOptions, type SemanticCacheOptions } from '../cache/cache-options.ts'
import type { SemanticCache } from '../cache/semantic-cache.ts'
import type { CacheStatistics } from '../cache/statistics.ts'
import { lazy } from '../core/lazy.ts'

const NOTHING_YET: CacheStatistics = {
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

/** The semantic cache, which is loaded at its first look-up; its options are checked now. */
export function createCache(options: SemanticCacheOptions): SemanticCache {
  checkCacheOptions(options)
  let loaded: SemanticCache | undefined
  const load = lazy(async () => {
    const { createSemanticCache } = await import('../cache/semantic-cache.ts')
    return (loaded = createSemanticCache(options))
  })
  const whole = async (): Promise<SemanticCache> => loaded ?? (await load())
  return {
    lookup: async (question) => (await whole()).lookup(question),
    peek: async (question) => (await whole()).peek(question),
    reportWrongHit: async (id) => loaded?.reportWrongHit(id),
    clear: async (which) => loaded?.clear(which),
    stats: () => loaded?.stats() ?? NOTHING_YET,
  }
}
