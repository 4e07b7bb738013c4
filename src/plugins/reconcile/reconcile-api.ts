/** Selects what is reconciled. */
export interface ReconcileQuery {
  /** First day in UTC, YYYY-MM-DD. */
  readonly from: string
  /** Last day in UTC, YYYY-MM-DD, at most 61 days later. A day that has not ended may have differences that disappear. */
  readonly to: string
  /** The rows of a vendor's usage export, which are compared with the ledger by day and model. @default none */
  readonly vendor?: readonly VendorUsageRow[]
}

/** One row of a vendor's usage export. Rows with the same day and model are added. */
export interface VendorUsageRow {
  /** YYYY-MM-DD. */
  readonly day: string
  /** The id of the model at the vendor. */
  readonly model: string
  readonly costUsd?: number
  readonly promptTokens?: number
  readonly completionTokens?: number
}

/** Billed amounts of one day in nano-dollars. */
export interface ReconciledDay {
  readonly day: string
  /** The sum of usage reports. */
  readonly ledgerNanoUsd: number
  /** Sum of the audit records whose requests ended on the day. Each is rounded to six decimals. */
  readonly auditNanoUsd: number
  /** By name of the plugin with the outbox. */
  readonly outboxes: Readonly<Record<string, OutboxAmounts>>
}

/** Records of an outbox. Amounts are in nano-dollars. */
export interface OutboxAmounts {
  readonly deliveredNanoUsd: number
  readonly waitingNanoUsd: number
  readonly deadNanoUsd: number
}

/**
 * - `ledger`: the records of an outbox do not add up to the ledger on a day.
 * - `waiting`: records that are not delivered yet.
 * - `dead-letter`: a record that could not be delivered.
 * - `lost`: records that a full store dropped before their delivery. They are counted without a day and an amount.
 * - `not-in-audit`, `not-in-events`, `amount`: a request that only one of both has, or whose amounts differ.
 * - `audit`: without an outbox, the audit records do not add up to the ledger in the whole period.
 */
export type DifferenceKind =
  | 'ledger'
  | 'waiting'
  | 'dead-letter'
  | 'lost'
  | 'not-in-audit'
  | 'not-in-events'
  | 'amount'
  | 'audit'

/** One difference. */
export interface ReconciliationDifference {
  readonly kind: DifferenceKind
  /** Name of the plugin with the outbox. */
  readonly outbox?: string
  readonly day?: string
  /** Id of the request. */
  readonly id?: string
  readonly customer?: string
  readonly keyId?: string
  /** Number of records. */
  readonly records?: number
  /** What is missing: positive if the ledger or the request has more than was found. */
  readonly nanoUsd: number
  readonly reason?: string
}

/** The ledger and a vendor's export, for one day and model. Models that only one of both has are included. */
export interface VendorComparison {
  readonly day: string
  readonly model: string
  /** The actual cost. */
  readonly ledgerNanoUsd: number
  readonly vendorNanoUsd: number
  readonly ledgerTokens: { readonly prompt: number; readonly completion: number }
  readonly vendorTokens: { readonly prompt: number; readonly completion: number }
}

/** The result of a reconciliation. */
export interface Reconciliation {
  readonly from: string
  readonly to: string
  /** True without differences. `vendor` is not considered. */
  readonly isEqual: boolean
  readonly days: readonly ReconciledDay[]
  /** At most 1,000. */
  readonly differences: readonly ReconciliationDifference[]
  /** Number of further differences. */
  readonly omitted: number
  readonly vendor: readonly VendorComparison[]
}

/** Compares what was settled with what was recorded and delivered. */
export interface Reconciling {
  /**
   * Compares the ledger with the audit trail, with the records of outboxes such as billing events, and with a vendor's usage
   * export. Rejects with `invalid-admin-request` for an invalid field. See docs/guides/invoice-from-the-bill.md.
   *
   * @example
   * const { isEqual, differences } = await gateway.usage.reconcile({ from: '2026-11-01', to: '2026-11-30' })
   * for (const { kind, day, id, nanoUsd } of differences) console.log(kind, day, id, nanoUsd)
   */
  readonly reconcile: (query: ReconcileQuery) => Promise<Reconciliation>
}
