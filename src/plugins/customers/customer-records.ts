/** The records of customers, for the admin API and in process. Loaded with the first use. */
import { checkFlag, expectedText, type OptionCheck, optionsOf } from '../../core/check-options.ts'
import { GatewayError } from '../../core/errors.ts'
import type { Store } from '../../core/store.ts'
import { scopeOf } from '../../governance/caller.ts'
import { invalidFieldError } from '../../governance/page-query.ts'
import { parserOf, type Spelling } from '../../governance/record-input.ts'
import { type RecordTable } from '../../governance/record-table.ts'
import { checkChain, hasChildren } from './check-chain.ts'
import type {
  ConfiguredCustomer,
  CustomerChange,
  CustomerPage,
  CustomerQuery,
  CustomerRecord,
  Customers,
  CustomerSettings,
  DeleteCustomerOptions,
  DeletedCustomer,
  NewCustomer,
  NewRaise,
} from './customer-api.ts'
import { CustomerIndex, entriesOf } from './customer-index.ts'
import { createCustomerChecks } from './customer-input.ts'
import type { CustomerScopes } from './customer-scopes.ts'
import type { CustomerTables } from './identify.ts'
import type { BudgetRaise, Customer } from './customer.ts'
import { listCustomers } from './list-customers.ts'
import type { CustomerPlan, CustomersOptions } from './options.ts'
import { changeParserOf } from '../../governance/change-input.ts'

const MAX_RAISES = 16
const NO_PLAN: CustomerPlan = {}

export interface CustomerRecordsOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly plans: Readonly<Record<string, CustomerPlan>>
  readonly customers: CustomersOptions
  /** Deletes what is stored for the callers of a scope. */
  readonly purge: (scope: string) => Promise<void>
}

/** Takes fields that were checked. */
export class CustomerRecords {
  readonly #options: CustomerRecordsOptions
  readonly #table: RecordTable<Customer>
  readonly #scopes: CustomerScopes
  readonly #index: CustomerIndex

  constructor(options: CustomerRecordsOptions, { table, scopes }: CustomerTables) {
    this.#options = options
    this.#table = table
    this.#scopes = scopes
    this.#index = new CustomerIndex(options.store, options.uuid)
  }

  async create({ id = this.#options.uuid(), ...fields }: NewCustomer): Promise<CustomerRecord> {
    const customer = this.#makeCustomer(id, fields)
    const [existing] = await this.#table.readAll([id])
    if (existing === undefined) {
      await this.#check(customer, fields)
      await this.#index.write(entriesOf(customer))
      if (await this.#table.insert(id, customer)) {
        await this.#confirmParent(customer, undefined, fields)
        return this.#toRecord(customer)
      }
    }
    const message = `id: a customer with the id ${JSON.stringify(id)} already exists. Choose another id, or update the existing customer.`
    throw new GatewayError('conflict', message, { param: 'id' })
  }

  async get(id: string): Promise<CustomerRecord> {
    return this.#toRecord(await this.#table.read(checkedId(id)))
  }

  async list(query: CustomerQuery = {}): Promise<CustomerPage> {
    const { customers, next } = await listCustomers(query, { store: this.#options.store, table: this.#table })
    return {
      customers: customers.map((customer) => this.#toRecord(customer)),
      hasMore: next !== undefined,
      next: next ?? null,
    }
  }

  async update(id: string, change: CustomerChange): Promise<CustomerRecord> {
    return this.#toRecord(await this.#change(id, (customer) => this.#changed(customer, change), change))
  }

  async raise(id: string, { addUsd, window, until }: NewRaise): Promise<CustomerRecord> {
    const raise: BudgetRaise = { addUsd, window, until: Date.parse(until) }
    if (raise.until <= this.#options.now()) throw invalidFieldError('until', 'expected a time in the future.')
    const change = (customer: Customer): Customer => {
      const budgets = customer.budgets ?? this.#planOf(customer).budgets ?? []
      if (!budgets.some((budget) => budget.window === window))
        throw invalidFieldError(
          'window',
          `the customer has no budget with the window ${window}. Set such a budget first.`,
        )
      const raises = [...this.#raisesOf(customer), raise]
      if (raises.length <= MAX_RAISES) return this.#revised({ ...customer, raises })
      const message = `The customer already has ${MAX_RAISES} raises. Wait until one of them ends, or change the budget.`
      throw new GatewayError('conflict', message)
    }
    return this.#toRecord((await this.#table.change(checkedId(id), change)).after)
  }

  async delete(id: string, { purge = false }: DeleteCustomerOptions = {}): Promise<DeletedCustomer> {
    if (purge) await this.#purge(checkedId(id))
    else await this.#remove(id)
    return { id, object: 'customer', deleted: true }
  }

  /** The record is deleted last. Otherwise, requests could create it again before all is deleted. */
  async #purge(id: string): Promise<void> {
    const isStored = await this.#deactivate(id)
    let hasKeys = false
    for await (const keyId of this.#scopes.keysOf(id)) {
      hasKeys = true
      await this.#options.purge(scopeOf(keyId, { customer: id }))
      await this.#scopes.remove(id, keyId)
    }
    // Throws `not-found` for an id that is not known at all.
    if (isStored || !hasKeys) await this.#remove(id)
  }

  /** Ends requests that would store further values. Resolves with false for an id without a record. */
  async #deactivate(id: string): Promise<boolean> {
    try {
      const { active } = await this.#table.read(id)
      const dependencies = { store: this.#options.store, table: this.#table }
      if (await hasChildren(id, dependencies)) throw childrenError(id)
      if (active) await this.#table.change(id, (customer) => this.#revised({ ...customer, active: false }))
      return true
    } catch (error) {
      if (GatewayError.is(error) && error.kind === 'not-found') return false
      ignoreUnreadable(error)
      return true
    }
  }

  async #remove(id: string): Promise<void> {
    const customer = await this.#table.read(checkedId(id)).catch(ignoreUnreadable)
    const dependencies = { store: this.#options.store, table: this.#table }
    if (await hasChildren(id, dependencies)) throw childrenError(id)
    const removeEntries = await this.#index.removal(customer === undefined ? [] : entriesOf(customer))
    const removed = await this.#table.remove(id)
    // A child may have been created since.
    if (removed !== undefined && (await hasChildren(id, dependencies))) {
      await this.#table.insert(id, removed)
      throw childrenError(id)
    }
    await removeEntries()
  }

  /** Parents first. Configuration overrides stored records. */
  async configure(customers: readonly ConfiguredCustomer[]): Promise<void> {
    const waiting = new Map(customers.map((customer) => [customer.id, customer]))
    while (waiting.size > 0) {
      const sizeBefore = waiting.size
      for (const customer of waiting.values()) {
        const { id, parentId } = customer
        if (parentId !== undefined && parentId !== null && waiting.has(parentId)) continue
        await this.#configureOne(customer)
        waiting.delete(id)
      }
      if (waiting.size < sizeBefore) continue
      const circle = [...waiting.keys()].slice(0, 10).join(', ')
      throw new GatewayError('invalid-request', `The parents of these configured customers form a circle: ${circle}.`)
    }
  }

  /** An inactive customer stays inactive unless `isActive` is set. */
  async #configureOne({ id, ...fields }: ConfiguredCustomer): Promise<void> {
    const customer = this.#makeCustomer(id, fields)
    await this.#check(customer, fields)
    await this.#index.write(entriesOf(customer))
    if (await this.#table.insert(id, customer)) return
    const replace = (stored: Customer): Customer => ({
      ...customer,
      createdAt: stored.createdAt,
      raises: this.#raisesOf(stored),
      active: fields.isActive ?? stored.active,
    })
    await this.#change(id, replace, fields)
  }

  async #change(id: string, change: (customer: Customer) => Customer, fields: CustomerSettings): Promise<Customer> {
    let removeEntries = async (): Promise<void> => {}
    const { before, after } = await this.#table.change(checkedId(id), async (stored) => {
      const changed = this.#revised(change(stored))
      await this.#check(changed, fields)
      const entries = entriesOf(changed)
      removeEntries = await this.#index.removal(entriesOf(stored).filter((entry) => !entries.includes(entry)))
      await this.#index.write(entries)
      return changed
    })
    await removeEntries()
    await this.#confirmParent(after, before, fields)
    return after
  }

  /** Of two concurrent changes that together form a circle or refer to a deleted parent, the later one is undone. */
  async #confirmParent(customer: Customer, before: Customer | undefined, fields: CustomerSettings): Promise<void> {
    if (customer.parent === undefined || customer.parent === before?.parent) return
    try {
      await this.#check(customer, fields)
    } catch (cause) {
      if (before === undefined) await this.#remove(customer.id)
      else await this.#restoreParent(customer, before)
      const message = 'The parents of this customer were changed at the same time. Read them again, and retry.'
      throw new GatewayError('conflict', message, { cause })
    }
  }

  async #restoreParent({ id, parent }: Customer, { parent: earlier }: Customer): Promise<void> {
    const restore = async (stored: Customer): Promise<Customer> => {
      if (stored.parent !== parent) return stored
      const { parent: _parent, ...rest } = stored
      const restored = this.#revised({ ...rest, ...(earlier !== undefined && { parent: earlier }) })
      await this.#index.write(entriesOf(restored))
      return restored
    }
    await this.#table.change(id, restore)
  }

  /** Skips the checks that read other records if no field is changed that they concern. */
  async #check(customer: Customer, fields: CustomerSettings): Promise<void> {
    const field = (['budgets', 'rateLimits', 'plan', 'parentId'] as const).find((name) => fields[name] !== undefined)
    if (field === undefined) return
    const { store } = this.#options
    await checkChain(customer, field, { store, table: this.#table, planOf: (record) => this.#planOf(record) })
  }

  #planOf({ plan = this.#options.customers.defaultPlan }: Customer): CustomerPlan {
    return (plan === undefined ? undefined : this.#options.plans[plan]) ?? NO_PLAN
  }

  /** A change of a record compares its text, and must fail if the record was changed and changed back in between. */
  #revised(customer: Customer): Customer {
    return { ...customer, revision: this.#options.uuid() }
  }

  #makeCustomer(id: string, fields: Omit<NewCustomer, 'id'>): Customer {
    const createdAt = this.#options.now()
    const customer = { id, name: id, metadata: {}, raises: [], permissions: {}, active: true, createdAt }
    return this.#changed(customer, fields)
  }

  #changed(customer: Customer, change: CustomerChange): Customer {
    const { id, createdAt } = customer
    return {
      id,
      createdAt,
      name: change.name ?? customer.name,
      metadata: change.metadata === undefined ? customer.metadata : (change.metadata ?? {}),
      permissions: change.permissions === undefined ? customer.permissions : (change.permissions ?? {}),
      active: change.isActive ?? customer.active,
      raises: this.#raisesOf(customer),
      ...changedField('parent', change.parentId, customer.parent),
      ...changedField('plan', change.plan, customer.plan),
      ...changedField('budgets', change.budgets, customer.budgets),
      ...changedField('rateLimits', change.rateLimits, customer.rateLimits),
      ...changedField('payer', change.payer, customer.payer),
      ...changedField('expiresAt', toTime(change.expiresAt), customer.expiresAt),
    }
  }

  #raisesOf({ raises }: Customer): readonly BudgetRaise[] {
    const now = this.#options.now()
    return raises.filter(({ until }) => until > now)
  }

  #toRecord(customer: Customer): CustomerRecord {
    const { id, name, parent, plan, metadata, budgets, rateLimits, permissions, payer, active, expiresAt } = customer
    return {
      id,
      object: 'customer',
      name,
      parentId: parent ?? null,
      plan: plan ?? null,
      metadata,
      budgets: budgets ?? null,
      rateLimits: rateLimits ?? null,
      permissions,
      payer: payer ?? null,
      isActive: active,
      expiresAt: expiresAt === undefined ? null : new Date(expiresAt).toISOString(),
      createdAt: new Date(customer.createdAt).toISOString(),
      raises: this.#raisesOf(customer).map(({ until, ...raise }) => ({
        ...raise,
        until: new Date(until).toISOString(),
      })),
    }
  }
}

export interface CustomerInput {
  readonly parseNew: (input: unknown) => NewCustomer
  readonly parseChange: (input: unknown) => CustomerChange
  readonly parseRaise: (input: unknown) => NewRaise
}

export function createCustomerInput(spelling: Spelling, plans: readonly string[]): CustomerInput {
  const checks = createCustomerChecks(spelling, plans)
  const raise = spelling === 'wire' ? 'add_usd' : 'addUsd'
  return {
    parseNew: parserOf<NewCustomer>(checks.newCustomer, '{"id": "acme", "plan": "pro"}'),
    parseChange: changeParserOf<CustomerChange>(checks.change, '{"plan": "pro"}'),
    parseRaise: parserOf<NewRaise>(checks.raise, `{"${raise}": 5, "window": "1M", "until": "2027-01-31T00:00:00Z"}`),
  }
}

/** Checks the arguments of the methods of a gateway. */
export function inProcessCustomers(records: CustomerRecords, plans: readonly string[]): Customers {
  const input = createCustomerInput('both', plans)
  return {
    create: async (fields) => records.create(input.parseNew(fields)),
    get: (id) => records.get(id),
    list: (query) => records.list(query),
    update: async (id, change) => records.update(id, input.parseChange(change)),
    delete: async (id, options = {}) => {
      const problem = checkDeletion(options, '')
      if (problem !== undefined) throw invalidFieldError(problem.path || 'options', problem.text)
      return records.delete(id, options)
    },
    raise: async (id, raise) => records.raise(id, input.parseRaise(raise)),
  }
}

/** A misspelled `purge` would keep what is stored. */
const checkDeletion = optionsOf(
  { purge: checkFlag } satisfies Record<keyof DeleteCustomerOptions, OptionCheck>,
  [],
  'an object, such as { purge: true }',
  'field',
)

function changedField<Name extends string, Value>(
  name: Name,
  change: Value | null | undefined,
  current: Value | undefined,
): { readonly [field in Name]?: Value } {
  const value = change === undefined ? current : (change ?? undefined)
  return value === undefined ? {} : ({ [name]: value } as { readonly [field in Name]: Value })
}

function toTime(text: string | null | undefined): number | null | undefined {
  return typeof text === 'string' ? Date.parse(text) : text
}

function checkedId(id: unknown): string {
  if (typeof id === 'string') return id
  throw invalidFieldError('id', expectedText('the id of a customer as a string', id, 'id'))
}

/** A record that cannot be read can still be deleted. */
function ignoreUnreadable(error: unknown): undefined {
  if (GatewayError.is(error) && error.kind === 'overloaded') return undefined
  throw error
}

function childrenError(id: string): GatewayError {
  const message = `The customer ${JSON.stringify(id)} has children. Delete them first, or change their parent.`
  return new GatewayError('conflict', message)
}
