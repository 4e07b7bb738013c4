import type { Store } from '../core/store.ts'
import { parseBudgetRecord, parseRateLimitRecord } from './record-schema.ts'
import { createRecordTable, type RecordTable } from './record-table.ts'
import type { Budget, RateLimit } from './virtual-key.ts'

/** The records that keys refer to by `budget_id` and `rate_limit_id`. */
export interface SharedLimits {
  readonly budgets: RecordTable<Budget>
  readonly rateLimits: RecordTable<RateLimit>
}

export function createSharedLimits(parts: {
  readonly store: Store
  readonly now: () => number
  readonly cacheMs?: number
  readonly keepsStale?: boolean
}): SharedLimits {
  return {
    budgets: createRecordTable({ ...parts, prefix: 'budget:', label: 'budget', parse: parseBudgetRecord }),
    rateLimits: createRecordTable({
      ...parts,
      prefix: 'rate-limit:',
      label: 'rate limit',
      parse: parseRateLimitRecord,
    }),
  }
}
