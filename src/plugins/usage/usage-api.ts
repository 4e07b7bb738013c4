/** What the rows of a usage report can be grouped by. */
export type UsageGroup = 'customer' | 'user' | 'session' | 'key' | 'model' | 'provider' | 'day' | `tag:${string}`

/** Selects and groups usage. */
export interface UsageQuery {
  /** At most 8. `tag:<name>` is the value of a tag. @default [], which is one row */
  readonly groupBy?: readonly UsageGroup[]
  /** First day in UTC, YYYY-MM-DD. @default the first day of this month */
  readonly from?: string
  /** Last day in UTC, YYYY-MM-DD. At most 400 days after `from`. @default today */
  readonly to?: string
  /** Exact values. An empty string selects usage without a value. @default all usage */
  readonly filter?: { readonly [group in Exclude<UsageGroup, 'day'>]?: string }
  /** @default 'json' */
  readonly format?: 'json' | 'csv'
  /** Maximum number of customers and keys whose usage a page contains, 1 to 1,000. @default 100 */
  readonly limit?: number
  /** `next` of the previous page. @default the first page */
  readonly after?: string
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
}
