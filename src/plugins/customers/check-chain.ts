/** Checks what a record cannot show by itself: its parents, and the number of limits of all levels. */
import type { GatewayError } from '../../core/errors.ts'
import type { Store } from '../../core/store.ts'
import { invalidFieldError } from '../../governance/page-query.ts'
import type { RecordTable } from '../../governance/record-table.ts'
import { childrenOf, idOfEntry } from './customer-index.ts'
import type { Customer } from './customer.ts'
import { MAX_LEVELS, MAX_LIMITS, MAX_LIMITS_OF_KEY } from './identify.ts'
import type { BudgetOptions, CustomerPlan, RateLimitOptions } from './options.ts'

/** A customer may have 100,000 descendants. Above this number, a request is refused if they have too many levels. */
const MAX_CHECKED_DESCENDANTS = 1_000

export interface ChainDependencies {
  readonly store: Store
  readonly table: RecordTable<Customer>
  readonly planOf: (customer: Customer) => CustomerPlan
}

/** Throws if the record must not be stored. @param field The field that an error about limits names. */
export async function checkChain(customer: Customer, field: string, dependencies: ChainDependencies): Promise<void> {
  const parents = await parentsOf(customer, dependencies)
  const above = parents.reduce((sum, parent) => sum + limitsOfLevel(parent, dependencies), 0)
  checkLimits(customer, above, field, dependencies)
  await checkDescendants(customer, { levels: parents.length + 1, above, field }, dependencies)
}

async function parentsOf(customer: Customer, { table }: ChainDependencies): Promise<readonly Customer[]> {
  const parents: Customer[] = []
  for (let id = customer.parent; id !== undefined; id = parents.at(-1)?.parent) {
    if (id === customer.id)
      throw invalidFieldError('parentId', 'the parents would form a circle. Choose another parent.')
    const [parent] = await table.readAll([id])
    if (parent === undefined)
      throw invalidFieldError('parentId', `there is no customer with the id ${JSON.stringify(id)}. Create it first.`)
    parents.push(parent)
    if (parents.length === MAX_LEVELS) throw levelsError()
  }
  return parents
}

async function checkDescendants(
  customer: Customer,
  start: { readonly levels: number; readonly above: number; readonly field: string },
  dependencies: ChainDependencies,
): Promise<void> {
  const { store, table } = dependencies
  let remaining = MAX_CHECKED_DESCENDANTS
  const visit = async (parent: Customer, levels: number, above: number): Promise<void> => {
    if (remaining <= 0) return
    const keys = await store.list(childrenOf(parent.id).prefix, { limit: remaining })
    remaining -= keys.length
    const sum = above + limitsOfLevel(parent, dependencies)
    for (const child of await table.readAll(keys.map(idOfEntry))) {
      if (child === undefined || child.parent !== parent.id) continue
      if (levels === MAX_LEVELS) throw levelsError()
      checkLimits(child, sum, start.field, dependencies)
      await visit(child, levels + 1, sum)
    }
  }
  await visit(customer, start.levels, start.above)
}

function checkLimits(customer: Customer, above: number, field: string, dependencies: ChainDependencies): void {
  const { perUser = [], perSession = {} } = dependencies.planOf(customer)
  const { limitUsd, requests, sameTurn } = perSession
  const ofSession = [limitUsd, requests, sameTurn].filter((limit) => limit !== undefined).length
  const total = above + limitsOfLevel(customer, dependencies) + countLimits(perUser) + ofSession + MAX_LIMITS_OF_KEY
  if (total <= MAX_LIMITS) return
  throw invalidFieldError(
    field,
    `requests of the customer ${JSON.stringify(customer.id)} would have ${total} limits, of which ${MAX_LIMITS_OF_KEY} are those that a key may have; expected at most ${MAX_LIMITS}. Remove limits of the customer, its parents or its plan.`,
  )
}

function limitsOfLevel(customer: Customer, { planOf }: ChainDependencies): number {
  const plan = planOf(customer)
  return countLimits([...(customer.budgets ?? plan.budgets ?? []), ...(customer.rateLimits ?? plan.rateLimits ?? [])])
}

function countLimits(limits: readonly (BudgetOptions | RateLimitOptions)[]): number {
  return limits.reduce(
    (sum, limit) =>
      sum + ('limitUsd' in limit ? 1 : Number(limit.requests !== undefined) + Number(limit.tokens !== undefined)),
    0,
  )
}

/** Entries that do not match their record are ignored. */
export async function hasChildren(
  id: string,
  { store, table }: Pick<ChainDependencies, 'store' | 'table'>,
): Promise<boolean> {
  const { prefix } = childrenOf(id)
  for (let after: string | undefined; ;) {
    const keys = await store.list(prefix, { limit: 100, ...(after !== undefined && { after }) })
    const records = await table.readAll(keys.map(idOfEntry))
    if (records.some((record) => record?.parent === id)) return true
    after = keys.at(-1)
    if (after === undefined) return false
  }
}

function levelsError(): GatewayError {
  return invalidFieldError(
    'parentId',
    `the customer, its parents and its children would have more than ${MAX_LEVELS} levels. Choose a parent with fewer parents.`,
  )
}
