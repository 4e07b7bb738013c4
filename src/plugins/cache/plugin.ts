import { lazy } from '../../core/async.ts'
import { readCacheDirectives } from '../../http/cache-directives.ts'
import { isSentUnchanged } from '../../kernel/plan.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { AnswerCache, recallFromCache } from './recall.ts'
import type { SemanticCache } from './semantic-cache.ts'

type RecallFromCache = typeof recallFromCache

/** Answers a question again from the cache, or with the answer to an identical request that is running. */
export function cachePlugin(cache: Omit<SemanticCache, 'stats'>): BuiltInPlugin {
  const answerCache: AnswerCache = { cache }
  let loaded: RecallFromCache | undefined
  const load = lazy(async () => (loaded = (await import('./recall.ts')).recallFromCache))
  return {
    checkHeaders: (request) => void readCacheDirectives((name) => request.header(name)),
    onLookup: (reserved, services) => {
      if (isSentUnchanged(reserved)) return undefined
      return loaded === undefined
        ? load().then((recall) => recall(reserved, answerCache, services))
        : loaded(reserved, answerCache, services)
    },
    close: () => cache.flush(),
  }
}
