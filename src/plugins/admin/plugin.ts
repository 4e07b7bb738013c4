import type { AdminOptions } from '../../kernel/admin-access.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { AdminRecords } from './admin-records.ts'

/** The HTTP API for virtual keys, budgets and rate limits. */
export function adminPlugin(records: () => Promise<AdminRecords>, admin: AdminOptions | undefined): BuiltInPlugin {
  return {
    endpoints: async (services) => (await import('./routes.ts')).adminEndpoints(records, admin, services),
  }
}
