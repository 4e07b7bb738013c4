import { lazy } from '../../core/async.ts'
import type { SemanticCacheOptions } from './cache-options.ts'
import type { CacheStatistics, SemanticCache } from './semantic-cache.ts'

/** Its statistics are undefined until it is used. */
type LazyCache = Omit<SemanticCache, 'stats'> & { stats(): CacheStatistics | undefined }

export function createCache(options: SemanticCacheOptions): LazyCache {
  let loaded: SemanticCache | undefined
  const load = lazy(async () => {
    const { createSemanticCache } = await import('./recall.ts')
    return (loaded = createSemanticCache(options))
  })
  return {
    lookUp: (query) => loaded?.lookUp(query) ?? load().then((cache) => cache.lookUp(query)),
    peek: (query) => loaded?.peek(query) ?? load().then((cache) => cache.peek(query)),
    // These calls also load the module, because other processes may have stored answers in a shared store.
    reportWrongHit: (id) => load().then((cache) => cache.reportWrongHit(id)),
    clear: (filter) => load().then((cache) => cache.clear(filter)),
    stats: () => loaded?.stats(),
    flush: async () => loaded?.flush(),
  }
}
