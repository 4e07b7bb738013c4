/** Pages of customers. Each page reads a bounded number of records. */
import { checkFlag, expects, integerFrom, type OptionCheck, optionsOf } from '../../core/check-options.ts'
import type { Store } from '../../core/store.ts'
import { invalidFieldError } from '../../governance/page-query.ts'
import { isSafeId, type RecordTable } from '../../governance/record-table.ts'
import type { CustomerQuery } from './customer-api.ts'
import { allIds, childrenOf, idOfEntry, idsFrom, type KeyRange, namesFrom } from './customer-index.ts'
import type { Customer } from './customer.ts'

/** Records that a page reads at most, besides those that it returns. */
const MAX_READ = 1_000
const MIN_CHUNK = 100
/** Begins the cursors of customers that were found by name. It cannot be part of an id. */
const BY_NAME = '~'

const checkQuery = optionsOf(
  {
    limit: integerFrom(1, 1_000),
    after: expects(
      'next of the previous page',
      (value) => typeof value === 'string' && value !== '' && value.length <= 1_000,
    ),
    search: expects(
      'a string of 1 to 200 characters',
      (value) => typeof value === 'string' && value !== '' && value.length <= 200,
    ),
    parent: expects('the id of a customer', (value) => typeof value === 'string' && isSafeId(value)),
    plan: expects('the name of a plan', (value) => typeof value === 'string' && value.length <= 100),
    active: checkFlag,
  } satisfies Record<keyof CustomerQuery, OptionCheck>,
  [],
  'an object, such as { search: "ac" }',
  'field',
)

export interface FoundCustomers {
  readonly customers: readonly Customer[]
  readonly next: string | undefined
}

interface Source extends KeyRange {
  readonly accepts: (customer: Customer) => boolean
  readonly cursorStart: string
}

export async function listCustomers(
  query: CustomerQuery,
  { store, table }: { readonly store: Store; readonly table: RecordTable<Customer> },
): Promise<FoundCustomers> {
  const problem = checkQuery(query, '')
  if (problem !== undefined) throw invalidFieldError(problem.path || 'query', problem.text)
  const { limit = 100, after } = query
  const isFiltered = query.parent !== undefined || query.plan !== undefined || query.active !== undefined
  const sources = sourcesOf(query)
  const first =
    after?.startsWith(BY_NAME) === true
      ? Math.max(
          0,
          sources.findIndex(({ cursorStart }) => cursorStart !== ''),
        )
      : 0
  const customers: Customer[] = []
  let read = 0
  for (const [index, source] of sources.entries()) {
    if (index < first) continue
    const { cursorStart, base, prefix, accepts } = source
    let position = index === first && after !== undefined ? base + after.slice(cursorStart.length) : undefined
    for (;;) {
      if (customers.length === limit || read >= MAX_READ) {
        // Continues before this source if nothing of it has been read.
        return { customers, next: position === undefined ? startOf(source) : cursorStart + position.slice(base.length) }
      }
      const wanted = limit - customers.length
      const chunk = isFiltered || cursorStart !== '' ? Math.max(wanted, MIN_CHUNK) : wanted
      const from = position === undefined ? {} : { after: position }
      const keys = await store.list(prefix, { limit: chunk + 1, ...from })
      const examined = keys.slice(0, chunk)
      const records = await table.readAll(examined.map(idOfEntry))
      for (const [at, key] of examined.entries()) {
        position = key
        read += 1
        const customer = records[at]
        if (customer !== undefined && accepts(customer)) customers.push(customer)
        if (customers.length === limit && at < keys.length - 1)
          return { customers, next: cursorStart + key.slice(base.length) }
      }
      if (keys.length <= chunk) break
    }
  }
  return { customers, next: undefined }
}

/** A cursor before the first key of the source. */
function startOf({ cursorStart, prefix, base }: Source): string {
  return `${cursorStart}${prefix.slice(base.length)}`
}

function sourcesOf({ search, parent, plan, active }: CustomerQuery): readonly Source[] {
  const matches = (customer: Customer): boolean =>
    (parent === undefined || customer.parent === parent) &&
    (plan === undefined || customer.plan === plan) &&
    (active === undefined || customer.active === active)
  if (search === undefined) {
    const range = parent === undefined ? allIds : childrenOf(parent)
    return [{ ...range, cursorStart: '', accepts: matches }]
  }
  const beginning = search.toLowerCase()
  const isName = (customer: Customer): boolean =>
    customer.name.toLowerCase().startsWith(beginning) && !customer.id.startsWith(search) && matches(customer)
  const byName: Source = { ...namesFrom(search), cursorStart: BY_NAME, accepts: isName }
  return isSafeId(search) ? [{ ...idsFrom(search), cursorStart: '', accepts: matches }, byName] : [byName]
}
