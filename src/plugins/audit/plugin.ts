import type { AdminOptions } from '../../kernel/admin-access.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { Store } from '../../core/store.ts'
import type { Audit } from './audit.ts'

/**
 * Appends a record of each request with a known key to the audit trail. Requests without one have none, because callers
 * without a key could fill it.
 */
export function auditPlugin(
  audit: Audit,
  store: Pick<Store, 'entries'>,
  admin: AdminOptions | undefined,
): BuiltInPlugin {
  return {
    endpoints: async (services) => (await import('./routes.ts')).auditEndpoints(store, admin, services),
    settledEntries: audit.entriesOf,
    // If there is a reservation, its settlement contains the record.
    onEnd: (finished, { reservation }) =>
      finished.keyId === undefined || reservation !== undefined ? undefined : audit.write(finished),
  }
}
