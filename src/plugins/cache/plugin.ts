import { lazy } from '../../core/async.ts'
import { isSentUnchanged } from '../../kernel/plan.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { SemanticCacheOptions } from './cache-options.ts'
import type { ResponseCache } from './recall.ts'
import type { CacheStatistics, SemanticCache } from './semantic-cache.ts'

/** The cache of a gateway: its hooks, and what the application may call. */
export interface GatewayCache extends Pick<SemanticCache, 'clear' | 'reportWrongHit'> {
  readonly plugin: BuiltInPlugin
  /** Returns undefined until the cache is used. */
  stats(): CacheStatistics | undefined
}

/** Answers a question again from the cache, or with the response to an identical request that is running. */
export function createCache(options: SemanticCacheOptions): GatewayCache {
  let loaded: ResponseCache | undefined
  const load = lazy(async () => (loaded = (await import('./recall.ts')).createResponseCache(options)))
  return {
    plugin: {
      onLookup: (reserved, services) => {
        if (isSentUnchanged(reserved)) return undefined
        return loaded === undefined
          ? load().then((cache) => cache.recall(reserved, services))
          : loaded.recall(reserved, services)
      },
      purge: async (scope) => (await load()).purge(scope),
      close: async () => loaded?.flush(),
    },
    // These calls also load the module, because other processes may have stored responses in a shared store.
    clear: (filter) => load().then((cache) => cache.clear(filter)),
    reportWrongHit: (id) => load().then((cache) => cache.reportWrongHit(id)),
    stats: () => loaded?.stats(),
  }
}
