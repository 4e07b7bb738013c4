import type { AdminOptions } from '../../kernel/admin-access.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { ReportDependencies } from './report.ts'
import type { SummaryDependencies } from './summary.ts'
import type { UsageReporting } from './usage-api.ts'

/** Usage reports and summaries. Loads the code with its first use. */
export function createUsage(
  dependencies: ReportDependencies & SummaryDependencies,
  admin: AdminOptions | undefined,
): { readonly usage: UsageReporting; readonly plugin: BuiltInPlugin } {
  return {
    usage: {
      report: async (query = {}) => (await import('./report.ts')).reportUsage(query, dependencies),
      summary: async (query) => (await import('./summary.ts')).summarizeUsage(query, dependencies),
    },
    plugin: {
      endpoints: async (services) => (await import('./routes.ts')).usageEndpoints(dependencies, admin, services),
    },
  }
}
