import type { Runtime, Store } from '../core/ports.ts'
import { createBudgets, type BudgetDesk } from './budgets.ts'
import type { Keyring } from './keyring.ts'
import { createKeys, type KeyDesk } from './keys.ts'
import { createRateLimits, type RateLimitDesk } from './rate-limits.ts'
import type { SharedLimits } from './shared-limits.ts'
import { createUsageReports } from './usage-report.ts'

/** What the admin API and the gateway's own methods change and show. */
export interface Desks {
  readonly keys: KeyDesk
  readonly budgets: BudgetDesk
  readonly rateLimits: RateLimitDesk
}

export interface DeskParts {
  readonly store: Store
  readonly runtime: Pick<Runtime, 'now' | 'uuid'>
  readonly keyring: Keyring
  readonly shared: SharedLimits
}

export function createDesks({ store, runtime, keyring, shared }: DeskParts): Desks {
  const { now, uuid } = runtime
  const reports = createUsageReports({ store, now, shared })
  return {
    keys: createKeys({ keyring, reports }),
    budgets: createBudgets({ shared, reports, uuid }),
    rateLimits: createRateLimits({ shared, uuid }),
  }
}
