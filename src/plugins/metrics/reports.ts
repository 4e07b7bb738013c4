import type { Metrics } from './metrics.ts'
import type { Drops, MetricsReports } from './prometheus.ts'

interface ReportSources {
  readonly metrics: Metrics
  readonly now: () => number
  /** Returns undefined if the cache is disabled. */
  readonly cacheCounts: () => CacheCounts | undefined
  readonly drops: () => Drops
  readonly waitingSettlements: () => number
}

interface CacheCounts {
  readonly hitRate: number
  readonly totalRequests: number
  readonly hits: number
  readonly misses: number
}

export function createMetricsReports(sources: ReportSources): MetricsReports {
  const { metrics, now, cacheCounts, drops, waitingSettlements } = sources
  return {
    summary: () => metrics.summary(now()),
    cache: () => {
      const { hitRate = 0, totalRequests = 0, hits = 0, misses = 0 } = cacheCounts() ?? {}
      return { hitRate, totalRequests, cacheHits: hits, cacheMisses: misses }
    },
    prometheus: async () => {
      const { writePrometheus } = await import('./prometheus.ts')
      return writePrometheus(metrics.totals(), drops(), waitingSettlements())
    },
  }
}
