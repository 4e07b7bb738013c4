import type { SemanticCache } from '../cache/semantic-cache.ts'
import type { Unsettled } from '../governance/ledger.ts'
import type { Audit } from '../records/audit.ts'
import type { Metrics } from '../records/metrics.ts'
import type { RequestLog } from '../records/request-log.ts'
import type { MetricsReports } from '../routes/status.ts'

/** Reports on requests, money and the cache, and on records that were dropped. */
export function createMetricsReports(parts: {
  readonly metrics: Metrics
  readonly audit: Pick<Audit, 'dropped'>
  readonly log: Pick<RequestLog, 'dropped'>
  readonly cache: Pick<SemanticCache, 'stats'> | undefined
  readonly now: () => number
  readonly unsettled: () => Unsettled
}): MetricsReports {
  const { metrics, audit, log, cache, now, unsettled } = parts
  return {
    summary: () => metrics.summary(now()),
    cache: () => {
      const { hitRate = 0, totalRequests = 0, hits = 0, misses = 0 } = cache?.stats() ?? {}
      return { hitRate, totalRequests, cacheHits: hits, cacheMisses: misses }
    },
    prometheus: async () => {
      const { writePrometheus } = await import('./on-demand.ts')
      const { waiting, dropped } = unsettled()
      const drops = { log: log.dropped(), audit: audit.dropped(), settlement: dropped }
      return writePrometheus(metrics.totals(), drops, waiting)
    },
  }
}
