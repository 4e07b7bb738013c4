import type { DurationCode } from '../core/period.ts'
import { createSharedRecords } from './shared-records.ts'
import { changeBudget, parseBudget, parseBudgetChange, type BudgetChange, type NewBudget } from './shared-schema.ts'
import type { SharedLimits } from './shared-limits.ts'
import type { UsageReports } from './usage-report.ts'
import type { Budget } from './virtual-key.ts'

/** A shared budget as the admin API writes it. */
export interface BudgetRecord {
  readonly id: string
  readonly object: 'budget'
  readonly name: string
  /** Dollars that all keys of this budget together may be billed in each window. */
  readonly max_limit: number
  readonly reset_duration: DurationCode
  /** Billed in the present window, rounded half up. */
  readonly current_usage_cents: number
  /** ISO 8601. */
  readonly resets_at: string
}

/** A page of a list, in ascending order of ids. */
export interface BudgetPage {
  readonly budgets: readonly BudgetRecord[]
  readonly has_more: boolean
}

/**
 * Budgets that several keys share by `budget_id`, in process: the same fields, checks and answers as the admin API
 * under `/api/governance/budgets`. Errors as those of `Keys`; `conflict` for an id that is taken.
 */
export interface Budgets {
  create(fields: NewBudget): Promise<BudgetRecord>
  get(id: string): Promise<BudgetRecord>
  /** @param query `limit` 1 to 1,000, default 100; `after` the last id of the page before. */
  list(query?: { readonly limit?: number; readonly after?: string }): Promise<BudgetPage>
  /** What was spent in a window stays spent, also when the limit or the window changes. */
  update(id: string, change: BudgetChange): Promise<BudgetRecord>
  /** Keys that still refer to it are refused with 402 until their `budget_id` changes. */
  delete(id: string): Promise<{ readonly id: string; readonly object: 'budget'; readonly deleted: true }>
}

/** The same for bodies that are not checked yet. */
export interface BudgetDesk extends Budgets {
  create(fields: unknown): Promise<BudgetRecord>
  update(id: string, change: unknown): Promise<BudgetRecord>
}

export function createBudgets(parts: {
  readonly shared: SharedLimits
  readonly reports: UsageReports
  readonly uuid: () => string
}): BudgetDesk {
  const { shared, reports, uuid } = parts
  const records = createSharedRecords<Budget, BudgetRecord>({
    table: shared.budgets,
    label: 'budget',
    uuid,
    parse: parseBudget,
    parseChange: (body) => {
      const change = parseBudgetChange(body)
      return (budget) => changeBudget(budget, change)
    },
    show: async (budgets) => {
      const windows = await reports.budgetWindows(budgets)
      return budgets.map((budget, index) => ({
        id: budget.id,
        object: 'budget',
        name: budget.name,
        max_limit: budget.limit.max / 1e9,
        reset_duration: budget.limit.every,
        current_usage_cents: windows[index]?.spentCents ?? 0,
        resets_at: windows[index]?.resetsAt ?? '',
      }))
    },
  })
  return {
    create: records.create,
    get: records.get,
    list: async (query = {}) => {
      const { shown, has_more } = await records.page(query)
      return { budgets: shown, has_more }
    },
    update: records.update,
    delete: async (id) => {
      await records.remove(id)
      return { id, object: 'budget', deleted: true }
    },
  }
}
