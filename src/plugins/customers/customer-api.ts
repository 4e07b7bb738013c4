import type { WireForm } from '../../core/field-names.ts'
import type { DurationCode } from '../../core/store.ts'
import type { Payer } from '../../governance/caller.ts'
import type { BudgetOptions, CustomerPermissions, RateLimitOptions } from './options.ts'

/** The settings of a customer. `null` removes a setting. An absent field keeps its value or its default. */
export interface CustomerSettings {
  /** Id of a customer that pays as well, such as a team or an organization. At most 4 levels. @default none */
  readonly parentId?: string | null | undefined
  /** Name of one of the `plans` of the gateway. @default `customers.defaultPlan` */
  readonly plan?: string | null | undefined
  /** At most 16 entries, with names of 1 to 64 characters and values of up to 500. @default {} */
  readonly metadata?: Readonly<Record<string, string>> | null | undefined
  /** Replaces the budgets of the plan. At most 6. @default those of the plan */
  readonly budgets?: readonly BudgetOptions[] | null | undefined
  /** Replaces the rate limits of the plan. At most 6. @default those of the plan */
  readonly rateLimits?: readonly RateLimitOptions[] | null | undefined
  /** Apply in addition to those of the plan, of the parents and of the key. @default no restriction */
  readonly permissions?: CustomerPermissions | null | undefined
  /** Who pays the vendor, unless the context of a request says so. @default that of the plan */
  readonly payer?: Payer | null | undefined
  /** If false, requests of this customer and of its children are rejected with 403. @default true */
  readonly isActive?: boolean | undefined
  /** When the customer expires, ISO 8601 with a time zone. @default never */
  readonly expiresAt?: string | null | undefined
}

/** Fields of a new customer. */
export interface NewCustomer extends CustomerSettings {
  /** 1 to 128 letters, digits, dots, hyphens and underscores. @default a new UUID */
  readonly id?: string | undefined
  /** 1 to 200 characters. @default the id */
  readonly name?: string | undefined
}

/** Changes to a customer. */
export interface CustomerChange extends CustomerSettings {
  readonly name?: string | undefined
}

/** A customer in the configuration. */
export interface ConfiguredCustomer extends NewCustomer {
  readonly id: string
}

/** A temporary raise of the budgets of one window. */
export interface NewRaise {
  /** Added to the maximum of these budgets, above 0 and at most 9,000,000. */
  readonly addUsd: number
  /** The window of the budgets that are raised. */
  readonly window: DurationCode
  /** When the raise ends, ISO 8601 with a time zone. */
  readonly until: string
}

/** A customer. */
export interface CustomerRecord {
  readonly id: string
  readonly object: 'customer'
  readonly name: string
  readonly parentId: string | null
  /** null: `customers.defaultPlan`. */
  readonly plan: string | null
  readonly metadata: Readonly<Record<string, string>>
  /** null: those of the plan. */
  readonly budgets: readonly BudgetOptions[] | null
  /** null: those of the plan. */
  readonly rateLimits: readonly RateLimitOptions[] | null
  readonly permissions: CustomerPermissions
  /** null: that of the plan. */
  readonly payer: Payer | null
  readonly isActive: boolean
  /** ISO 8601. null: the customer does not expire. */
  readonly expiresAt: string | null
  /** ISO 8601. */
  readonly createdAt: string
  /** Those that have not ended. */
  readonly raises: readonly NewRaise[]
}

/** Selects customers. All conditions must be met. */
export interface CustomerQuery {
  /** Maximum number of customers, 1 to 1,000. @default 100 */
  readonly limit?: number
  /** `next` of the previous page. @default the first page */
  readonly after?: string
  /** The beginning of the id, or of the name in any case. */
  readonly search?: string
  /** Id of the parent. */
  readonly parent?: string
  /** Name of the plan in the record. */
  readonly plan?: string
  /** True for customers with `isActive`, false for the others. An expired customer may be active. */
  readonly active?: boolean
}

/**
 * A page of customers. With conditions, a page may have fewer customers than `limit`, or none, although `hasMore` is true,
 * because each page reads at most about 1,000 records.
 */
export interface CustomerPage {
  readonly customers: readonly CustomerRecord[]
  readonly hasMore: boolean
  /** Pass as `after` for the next page. null: this is the last page. */
  readonly next: string | null
}

/** How a customer is deleted. */
export interface DeleteCustomerOptions {
  /**
   * True to delete what is stored for its requests first: responses, conversations, batches, recordings and files. See
   * docs/customers.md for what remains. An interrupted deletion leaves the customer inactive, and can be repeated.
   * @default false
   */
  readonly purge?: boolean
}

/** The result of the deletion of a customer. */
export interface DeletedCustomer {
  readonly id: string
  readonly object: 'customer'
  readonly deleted: true
}

/**
 * Operations on customers, as in `/api/governance/customers` but without HTTP. Field names are in camel case. The name of
 * a field in the HTTP API (`parent_id`) is also accepted, but not both of them. Rejects with a GatewayError, such as
 * `invalid-admin-request` for an invalid field (its path is in `details.param`), or `not-found` for an unknown id.
 */
export interface Customers {
  create(fields: NewCustomer | WireForm<NewCustomer>): Promise<CustomerRecord>
  get(id: string): Promise<CustomerRecord>
  /** Lists customers in ascending order of id. With `search`, those that match by id come before those that match by name. */
  list(query?: CustomerQuery): Promise<CustomerPage>
  /** Updates the fields in `change`. Absent fields keep their values. Resolves with the updated record. */
  update(id: string, change: CustomerChange | WireForm<CustomerChange>): Promise<CustomerRecord>
  /**
   * Rejects with `conflict` if the customer has children. Usage and audit records of a deleted customer remain.
   *
   * @example
   * await gateway.customers.delete('acme', { purge: true })
   */
  delete(id: string, options?: DeleteCustomerOptions): Promise<DeletedCustomer>
  /**
   * Raises the budgets of one window until a time. At most 16 raises at once. Ended raises are dropped with the next change.
   *
   * @example
   * await gateway.customers.raise('acme', { addUsd: 5, window: '1M', until: '2027-01-31T00:00:00Z' })
   */
  raise(id: string, raise: NewRaise | WireForm<NewRaise>): Promise<CustomerRecord>
}
