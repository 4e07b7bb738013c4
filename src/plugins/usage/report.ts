/** Reports usage from the tallies of rows. Loaded with the first use. */
import {
  checkDate,
  expectedText,
  expects,
  fieldPath,
  firstProblem,
  integerFrom,
  listOf,
  oneOf,
  type OptionCheck,
  optionsOf,
} from '../../core/check-options.ts'
import { isJsonObject } from '../../core/json.ts'
import { toDollars, toNanoUsd } from '../../core/money.ts'
import { OTHER, periodOf, type Store } from '../../core/store.ts'
import { APPLICATION_KEY } from '../../governance/caller.ts'
import { keyOwner } from '../../governance/limits.ts'
import { invalidFieldError } from '../../governance/page-query.ts'
import { USAGE_FIELDS, type UsageSums } from '../../governance/settlements.ts'
import { removeEndedOwners, USAGE_OWNER_PREFIX } from '../../governance/usage-owners.ts'
import { parseRow, rowTallyNames, type UsageRow } from '../../governance/usage-rows.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { writeCsv } from './csv.ts'
import type { UsageAmounts, UsageGroup, UsageQuery, UsageReport, UsageReportRow } from './usage-api.ts'

export interface ReportDependencies {
  readonly store: Pick<Store, 'get' | 'set' | 'swap' | 'delete' | 'list' | 'tallies'>
  readonly now: () => number
}

const DAY_MS = 86_400_000
const MAX_DAYS = 401
const DEFAULT_LIMIT = 100
const MAX_LIMIT = 1000
/** Tallies of one page, and of one call of the store. A page contains at least one customer or key. */
const MAX_TALLIES = 40_000
const CALL_TALLIES = 2_000

const GROUP = /^(?:customer|user|session|key|model|provider|day|tag:[\x21-\x7e]{1,64})$/
const isGroup = (name: unknown): boolean => typeof name === 'string' && GROUP.test(name)
const GROUPS = 'customer, user, session, key, model, provider, day or tag:<name>'
const FILTERS = 'customer, user, session, key, model, provider or tag:<name>'

/** An undefined value is an error, because it would report the usage of all customers. */
const checkFilter: OptionCheck = (value, path) => {
  if (!isJsonObject(value)) {
    return { path, text: expectedText('an object with texts, such as { customer: "acme" }', value, path) }
  }
  for (const [name, text] of Object.entries(value)) {
    const field = fieldPath(path, name)
    if (name === 'day' || !isGroup(name)) return { path: field, text: `expected one of ${FILTERS} as the name.` }
    if (typeof text !== 'string') return { path: field, text: expectedText('a text', text, field) }
  }
  return undefined
}

const checkQuery = optionsOf(
  {
    groupBy: firstProblem(
      listOf(`a list of ${GROUPS}`, expects(`one of ${GROUPS}`, isGroup)),
      expects('at most 8 different values', (value) => {
        const groups = Array.isArray(value) ? value : []
        return groups.length <= 8 && new Set(groups).size === groups.length
      }),
    ),
    from: checkDate,
    to: checkDate,
    filter: checkFilter,
    format: oneOf('json', 'csv'),
    limit: integerFrom(1, MAX_LIMIT),
    after: expects('`next` of the previous page', (value) => typeof value === 'string' && isOwner(value)),
  } satisfies Record<keyof UsageQuery, OptionCheck>,
  [],
  'an object, such as { groupBy: ["customer"] }',
  'field',
)

/** Resolves with the usage of one page of customers and keys. */
export async function reportUsage(query: UsageQuery, { store, now }: ReportDependencies): Promise<UsageReport> {
  const problem = checkQuery(query, '')
  if (problem !== undefined) throw invalidFieldError(problem.path || 'query', problem.text)
  const { groupBy = [], filter = {}, limit = DEFAULT_LIMIT, after, format = 'json' } = query
  const { from, to, days } = daysOf(query, now())
  if (after === undefined) await removeEndedOwners(store, now())
  const pageSize = Math.max(1, Math.min(limit, Math.floor(MAX_TALLIES / (days.length * SHARDS))))
  const { owners, next } = await listOwners(store, { customer: filter.customer, after, limit: pageSize })
  const groups = new Map<string, ReportGroup>()
  await visitRows(store, owners, days, (valueOf, amounts) => {
    if (!Object.entries(filter).every(([name, value]) => valueOf(name) === value)) return
    const values = groupBy.map(valueOf)
    const id = JSON.stringify(values)
    const group = groups.get(id) ?? { values, amounts: { ...NO_AMOUNTS } }
    groups.set(id, group)
    addAll(group.amounts, amounts)
  })
  const sorted = [...groups.values()].toSorted((a, b) => compareValues(a.values, b.values))
  const rows = sorted.map(({ values, amounts }) => toRow(groupBy, values, amounts))
  const sums: Sums = { ...NO_AMOUNTS }
  for (const { amounts } of sorted) addAll(sums, amounts)
  const totals = toAmounts(sums)
  if (format === 'json') return { from, to, rows, totals, next }
  return { from, to, rows: [], csv: writeCsv(groupBy, rows, after === undefined), totals, next }
}

/** Calls `visit` with each row of these owners on these days. */
export async function visitRows(
  store: Pick<Store, 'tallies'>,
  owners: readonly string[],
  days: readonly number[],
  visit: (valueOf: (group: string) => string, amounts: Partial<UsageSums>) => void,
): Promise<void> {
  const tables = owners.flatMap((owner) =>
    days.flatMap((day) => rowTallyNames(owner, day).map((name) => ({ name, owner, day }))),
  )
  for (let start = 0; start < tables.length; start += CALL_TALLIES) {
    const chunk = tables.slice(start, start + CALL_TALLIES)
    const tallies = await store.tallies(chunk.map(({ name }) => name))
    for (const [index, { owner, day }] of chunk.entries()) {
      for (const [text, amounts] of rowsOf(tallies[index] ?? {})) visit(valuesOf(owner, day, parseRow(text)), amounts)
    }
    // A page may have millions of fields.
    await yieldToEventLoop()
  }
}

const SHARDS = rowTallyNames('', 0).length

function daysOf(
  query: UsageQuery,
  now: number,
): { readonly from: string; readonly to: string; readonly days: number[] } {
  const to = query.to ?? dateOf(now)
  const last = Date.parse(to)
  const from = query.from ?? dateOf(Math.min(last, periodOf(now, '1M').start))
  const first = Date.parse(from)
  if (first > last) throw invalidFieldError('from', `expected a day that is not after ${to}.`)
  const count = (last - first) / DAY_MS + 1
  if (count > MAX_DAYS) throw invalidFieldError('from', `expected a day at most ${MAX_DAYS - 1} days before ${to}.`)
  return { from, to, days: Array.from({ length: count }, (_, index) => first + index * DAY_MS) }
}

export function dateOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10)
}

function isOwner(text: string): boolean {
  return /^(?:customer|key):[\w.-]{1,128}$/.test(text)
}

interface OwnerQuery {
  readonly customer: string | undefined
  readonly after: string | undefined
  readonly limit: number
}

/**
 * Those that have or had a record, in ascending order: customers, then keys. A deleted record leaves an entry with the
 * prefix `usage-owner:`, because its usage remains.
 */
async function listOwners(
  store: ReportDependencies['store'],
  { customer, after, limit }: OwnerQuery,
): Promise<{ readonly owners: readonly string[]; readonly next: string | null }> {
  if (customer !== undefined && customer !== '' && customer !== OTHER)
    return { owners: isOwner(`customer:${customer}`) ? [`customer:${customer}`] : [], next: null }
  const prefixes = ['customer:', 'key:'].filter((prefix) => customer === undefined || prefix === 'key:')
  const lists = await Promise.all(
    prefixes.flatMap((prefix) => {
      if (after !== undefined && after > prefix && !after.startsWith(prefix)) return []
      const from = after?.startsWith(prefix) === true ? after : undefined
      return [
        store.list(prefix, { limit: limit + 1, ...(from !== undefined && { after: from }) }),
        store.list(USAGE_OWNER_PREFIX + prefix, {
          limit: limit + 1,
          ...(from !== undefined && { after: USAGE_OWNER_PREFIX + from }),
        }),
      ]
    }),
  )
  const names = lists
    .flat()
    .map((name) => (name.startsWith(USAGE_OWNER_PREFIX) ? name.slice(USAGE_OWNER_PREFIX.length) : name))
  const application = keyOwner(APPLICATION_KEY.id)
  const all = [...names, ...(after === undefined || after < application ? [application] : [])]
  const sorted = [...new Set(all.filter(isOwner))].toSorted()
  const owners = sorted.slice(0, limit)
  return { owners, next: sorted.length > limit ? (owners.at(-1) ?? null) : null }
}

/** Returns the value of a group. */
function valuesOf(owner: string, day: number, row: UsageRow | undefined): (group: string) => string {
  const separator = owner.indexOf(':')
  const id = owner.slice(separator + 1)
  const isCustomer = owner.startsWith('customer:')
  return (group) => {
    if (group === 'customer') return isCustomer ? id : ''
    if (group === 'day') return dateOf(day)
    if (group === 'key' && !isCustomer) return id
    if (row === undefined) return OTHER
    if (group.startsWith('tag:')) return tagOf(row.tags, group.slice('tag:'.length))
    return row[group as Exclude<keyof UsageRow, 'tags'>]
  }
}

function tagOf(tags: readonly string[], name: string): string {
  if (tags.length === 1 && tags[0] === OTHER) return OTHER
  return tags.find((tag) => tag.startsWith(`${name}=`))?.slice(name.length + 1) ?? ''
}

export type Sums = { -readonly [field in keyof UsageSums]: UsageSums[field] }

interface ReportGroup {
  readonly values: readonly string[]
  readonly amounts: Sums
}

export const NO_AMOUNTS: UsageSums = {
  requests: 0,
  prompt: 0,
  completion: 0,
  saved: 0,
  theoretical: 0,
  actual: 0,
  billed: 0,
}

/** The fields of a tally are `<amount> <row>`. */
function rowsOf(tally: Readonly<Record<string, number>>): ReadonlyMap<string, Partial<Sums>> {
  const rows = new Map<string, Partial<Sums>>()
  for (const [field, amount] of Object.entries(tally)) {
    const space = field.indexOf(' ')
    const name = USAGE_FIELDS.find((known) => known === field.slice(0, space))
    if (name === undefined) continue
    const text = field.slice(space + 1)
    const row = rows.get(text) ?? {}
    rows.set(text, row)
    row[name] = amount
  }
  return rows
}

export function addAll(sums: Sums, added: Partial<Sums>): void {
  for (const field of USAGE_FIELDS) sums[field] += added[field] ?? 0
}

function compareValues(a: readonly string[], b: readonly string[]): number {
  for (const [index, value] of a.entries()) {
    const other = b[index] ?? ''
    if (value !== other) return value < other ? -1 : 1
  }
  return 0
}

function toRow(groupBy: readonly UsageGroup[], values: readonly string[], amounts: UsageSums): UsageReportRow {
  return { group: Object.fromEntries(groupBy.map((name, index) => [name, values[index] ?? ''])), ...toAmounts(amounts) }
}

function toAmounts({ requests, prompt, completion, saved, theoretical, actual, billed }: UsageSums): UsageAmounts {
  return {
    requests,
    tokens: { prompt, completion, saved },
    cost: {
      theoreticalNanoUsd: theoretical,
      theoreticalUsd: toDollars(toNanoUsd(theoretical)),
      actualNanoUsd: actual,
      actualUsd: toDollars(toNanoUsd(actual)),
      billedNanoUsd: billed,
      billedUsd: toDollars(toNanoUsd(billed)),
    },
  }
}
