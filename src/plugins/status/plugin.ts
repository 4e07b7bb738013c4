import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { StatusSources } from './status.ts'

/** Reports whether the gateway can serve requests. */
export function statusPlugin(sources: StatusSources): BuiltInPlugin {
  return {
    endpoints: async (services) => (await import('./status.ts')).statusEndpoints(sources, services),
  }
}
