import type { DurationCode } from '../../core/store.ts'

/** What the rows of a usage report can be grouped by. */
export type UsageGroup = 'customer' | 'user' | 'session' | 'key' | 'model' | 'provider' | 'day' | `tag:${string}`

/** Selects and groups usage. */
export interface UsageQuery {
  /** At most 8. `tag:<name>` is the value of a tag. @default [], which is one row */
  readonly groupBy?: readonly UsageGroup[] | undefined
  /** First day in UTC, YYYY-MM-DD. @default the first day of this month */
  readonly from?: string | undefined
  /** Last day in UTC, YYYY-MM-DD. At most 400 days after `from`. @default today */
  readonly to?: string | undefined
  /** Exact values. An empty string selects usage without a value, and `undefined` is refused. @default all usage */
  readonly filter?: { readonly [group in Exclude<UsageGroup, 'day'>]?: string }
  /** @default 'json' */
  readonly format?: 'json' | 'csv' | undefined
  /** Maximum number of customers and keys whose usage a page contains, 1 to 1,000. @default 100 */
  readonly limit?: number | undefined
  /** `next` of the previous page. @default the first page */
  readonly after?: string | undefined
}

/** Sums of usage. The amounts in nano-dollars (billionths of a dollar) are exact. Those in dollars are rounded to six decimals. */
export interface UsageAmounts {
  readonly requests: number
  /** `saved` is the number of prompt tokens that were not sent upstream. */
  readonly tokens: { readonly prompt: number; readonly completion: number; readonly saved: number }
  readonly cost: {
    /** At list price, without optimization. */
    readonly theoreticalNanoUsd: number
    readonly theoreticalUsd: number
    /** Paid to upstreams. */
    readonly actualNanoUsd: number
    readonly actualUsd: number
    readonly billedNanoUsd: number
    readonly billedUsd: number
  }
}

/** Usage of one combination of the values in `groupBy`. */
export interface UsageReportRow extends UsageAmounts {
  /**
   * An empty string: none. `(other)`: usage that is counted together, because a customer or key has had too many
   * combinations on a day.
   */
  readonly group: Readonly<Record<string, string>>
}

/**
 * The usage of some customers and keys, in ascending order of the values in `groupBy`. Rows of different pages with the
 * same values are parts of one sum.
 */
export interface UsageReport {
  readonly from: string
  readonly to: string
  /** Empty with the format `csv`. */
  readonly rows: readonly UsageReportRow[]
  /** The rows as CSV, with a header line on the first page. Only with the format `csv`. */
  readonly csv?: string
  /** Sums over the rows of this page. */
  readonly totals: UsageAmounts
  /** Pass as `after` for the next page. null: this is the last page. */
  readonly next: string | null
}

/** Selects the limits and usage of a customer, or of one of its users or sessions. */
export interface UsageSummaryQuery {
  readonly customer: string
  /** Adds the limits of this user, and selects its usage. @default all users */
  readonly user?: string | undefined
  /** Adds the limits of this session, and selects its usage. @default all sessions */
  readonly session?: string | undefined
}

/** A limit in its current window. */
export interface LimitSummary {
  readonly level: 'customer' | 'user' | 'session'
  /** `session`: until the session has been idle. */
  readonly window: DurationCode | `rolling ${DurationCode}` | 'session'
  /** Names of the models that the limit counts. null: all models. */
  readonly models: readonly string[] | null
  /** ISO 8601. null for sessions. */
  readonly startsAt: string | null
  /**
   * The end of the window, ISO 8601. For a rolling window, the time at which the first amount leaves it, or null if it has
   * none. null for sessions.
   */
  readonly resetsAt: string | null
}

/** A budget with its current amounts. Those in nano-dollars are exact, and those in dollars rounded to six decimals. */
export interface BudgetSummary extends LimitSummary {
  /** The maximum, including `raises`. */
  readonly limitNanoUsd: number
  readonly limitUsd: number
  readonly spentNanoUsd: number
  readonly spentUsd: number
  /** Reserved by running requests. */
  readonly heldNanoUsd: number
  readonly heldUsd: number
  /** What the next request may cost: the limit without what is spent and held, at least 0. */
  readonly remainingNanoUsd: number
  readonly remainingUsd: number
  /** Temporary additions to the maximum. `until` is ISO 8601. */
  readonly raises: readonly { readonly addUsd: number; readonly until: string }[]
  /**
   * `spent` at the end of the window, if spending continues as it has since the window began, or since the customer was
   * created. null before a tenth of the window has passed, and for windows without a common end.
   */
  readonly forecastNanoUsd: number | null
  readonly forecastUsd: number | null
}

/** A limit on requests or tokens with its current amounts. */
export interface RateLimitSummary extends LimitSummary {
  readonly unit: 'requests' | 'tokens'
  readonly limit: number
  readonly spent: number
  /** Reserved by running requests. */
  readonly held: number
  readonly remaining: number
  /** As `forecastNanoUsd` of a budget. */
  readonly forecast: number | null
}

/** Billed usage. The amount in nano-dollars is exact, and the one in dollars rounded to six decimals. */
export interface BilledUsage {
  readonly requests: number
  readonly tokens: { readonly prompt: number; readonly completion: number }
  readonly billedNanoUsd: number
  readonly billedUsd: number
}

/** Billed usage since the start of a day or month in UTC. */
export interface PeriodSummary extends BilledUsage {
  /** YYYY-MM-DD. */
  readonly from: string
  /** In ascending order of `model`. Requests without usage have none. */
  readonly models: readonly (BilledUsage & { readonly model: string })[]
}

/** Limits and usage of a customer, for a page that it may see: without margins, costs of the operator, and other customers. */
export interface UsageSummary {
  readonly customer: string
  readonly user: string | null
  readonly session: string | null
  /** When the amounts were read, ISO 8601. */
  readonly at: string
  readonly budgets: readonly BudgetSummary[]
  readonly rateLimits: readonly RateLimitSummary[]
  readonly today: PeriodSummary
  readonly month: PeriodSummary
  /**
   * False if `today` and `month` may lack usage of the user or session, because the customer has had too many on a day
   * (see docs/usage.md). Budgets and rate limits are always exact.
   */
  readonly isComplete: boolean
}

/** Usage of customers, users, sessions, keys, models, providers and tags by day. */
export interface UsageReporting {
  /**
   * Reports requests, tokens and cost. Rejects with `invalid-admin-request` for an invalid field. See docs/usage.md.
   *
   * @example
   * const { rows } = await gateway.usage.report({ groupBy: ['customer', 'model'], from: '2026-11-01', to: '2026-11-30' })
   * for (const { group, cost } of rows) console.log(group.customer, group.model, cost.billedUsd)
   */
  readonly report: (query?: UsageQuery) => Promise<UsageReport>
  /**
   * Returns the limits and usage of a customer, or of one of its users or sessions, for a page of your product. Rejects with
   * `not-found` for an unknown customer, and `invalid-admin-request` for an invalid field. See docs/usage.md.
   *
   * @example
   * const { budgets } = await gateway.usage.summary({ customer: 'acme' })
   * for (const { window, spentUsd, limitUsd, resetsAt } of budgets) console.log(window, spentUsd, limitUsd, resetsAt)
   */
  readonly summary: (query: UsageSummaryQuery) => Promise<UsageSummary>
}
