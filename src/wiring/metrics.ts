import type { SemanticCache } from '../cache/semantic-cache.ts'
import type { Unsettled } from '../governance/ledger.ts'
import type { Audit } from '../records/audit.ts'
import type { Metrics } from '../records/metrics.ts'
import type { RequestLog } from '../records/request-log.ts'
import type { MetricsReports } from '../routes/metrics.ts'

/** What an operator sees of the metrics, the log, the audit trail and the cache. */
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
      return { hit_rate: hitRate, total_requests: totalRequests, cache_hits: hits, cache_misses: misses }
    },
    prometheus: async () => {
      const { writePrometheus } = await import('./on-demand.ts')
      const { waiting, dropped } = unsettled()
      const drops = { log: log.dropped(), audit: audit.dropped(), settlement: dropped }
      return writePrometheus(metrics.totals(), drops, waiting)
    },
  }
}
