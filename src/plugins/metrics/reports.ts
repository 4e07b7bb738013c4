import type { SemanticCache } from '../cache/semantic-cache.ts'
import type { Ledger } from '../../governance/ledger.ts'
import type { ObserverTargets } from '../../kernel/settle.ts'
import type { MetricsReports } from './prometheus.ts'

export function createMetricsReports(
  { metrics, audit, log, now }: ObserverTargets,
  cache: Pick<SemanticCache, 'stats'> | undefined,
  ledger: Pick<Ledger, 'settlementCounts'>,
): MetricsReports {
  return {
    summary: () => metrics.summary(now()),
    cache: () => {
      const { hitRate = 0, totalRequests = 0, hits = 0, misses = 0 } = cache?.stats() ?? {}
      return { hitRate, totalRequests, cacheHits: hits, cacheMisses: misses }
    },
    prometheus: async () => {
      const { writePrometheus } = await import('./prometheus.ts')
      const { waiting, dropped } = ledger.settlementCounts()
      const drops = { log: log.dropped(), audit: audit.dropped(), settlement: dropped }
      return writePrometheus(metrics.totals(), drops, waiting)
    },
  }
}
