import type { AdminOptions } from '../../kernel/admin-access.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { Metrics } from './metrics.ts'
import type { MetricsReports } from './prometheus.ts'

/** Counts requests, tiers and costs, and reports them to operators. */
export function metricsPlugin(
  metrics: Metrics,
  reports: MetricsReports,
  admin: AdminOptions | undefined,
): BuiltInPlugin {
  return {
    endpoints: async (services) => (await import('./prometheus.ts')).metricsEndpoints(reports, admin, services),
    onEnd: metrics.record,
  }
}
