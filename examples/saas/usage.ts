/** What a customer has used and may still use, and its invoices. Everything is read from the gateway. */
import type { UsageQuery, UsageReport, UsageReportRow, UsageSummary } from 'sluice'
import { gateway } from './gateway.ts'

const DAY_MS = 86_400_000
/** Days on the usage page. */
const DAYS = 30

const NO_LIMITS: UsageView['own'] = { budgets: [], rateLimits: [] }

/** A customer, or an organization with its teams. */
export interface Payer {
  readonly id: string
  readonly name: string
  readonly plan: string
  readonly parentId: string | null
  /** The teams of an organization. */
  readonly teams: readonly { readonly id: string; readonly name: string }[]
}

export interface UsageView {
  readonly payer: Payer
  readonly summary: UsageSummary
  /** The limits of the user who looks at the page. */
  readonly own: Pick<UsageSummary, 'budgets' | 'rateLimits'>
  readonly teams: readonly { readonly name: string; readonly summary: UsageSummary }[]
  /** All days that the page shows, YYYY-MM-DD. */
  readonly days: readonly string[]
  readonly rows: readonly UsageReportRow[]
}

export async function payerOf(id: string): Promise<Payer> {
  const [{ name, plan, parentId }, { customers }] = await Promise.all([
    gateway.customers.get(id),
    gateway.customers.list({ parent: id, limit: 1000 }),
  ])
  return { id, name, plan: plan ?? 'free', parentId, teams: customers.map(({ id, name }) => ({ id, name })) }
}

/** @param user A user, and the customer that pays for it: `id` or one of its teams. */
export async function readUsage(
  id: string,
  user?: { readonly customer: string; readonly email: string },
): Promise<UsageView> {
  const payer = await payerOf(id)
  const now = Date.now()
  const days = Array.from({ length: DAYS }, (_, index) => dateOf(now - (DAYS - 1 - index) * DAY_MS))
  const [summary, own, teams, rows] = await Promise.all([
    gateway.usage.summary({ customer: id }),
    user === undefined ? NO_LIMITS : gateway.usage.summary({ customer: user.customer, user: user.email }),
    Promise.all(
      payer.teams.map(async ({ id, name }) => ({ name, summary: await gateway.usage.summary({ customer: id }) })),
    ),
    readRows(payer, { groupBy: ['customer', 'user', 'model', 'day'], from: days[0] ?? dateOf(now), to: dateOf(now) }),
  ])
  const isOwn = ({ level }: { readonly level: string }): boolean => level === 'user'
  const limits = { budgets: own.budgets.filter(isOwn), rateLimits: own.rateLimits.filter(isOwn) }
  return { payer, summary, own: limits, teams, days, rows }
}

export interface Totals {
  readonly requests: number
  readonly billedNanoUsd: number
  readonly actualNanoUsd: number
}

export type Sum = readonly [name: string, billedNanoUsd: number, requests: number]

export interface Invoice {
  readonly payer: Payer
  readonly month: string
  readonly isComplete: boolean
  readonly lines: readonly UsageReportRow[]
  readonly totalNanoUsd: number
}

const LINES = ['customer', 'model'] as const

export async function readInvoice(id: string, month: string): Promise<Invoice> {
  const payer = await payerOf(id)
  const lines = await readRows(payer, { groupBy: LINES, ...periodOf(month) })
  return { payer, month, isComplete: month < dateOf(Date.now()).slice(0, 7), lines, totalNanoUsd: billed(lines) }
}

/** The lines of the invoice for a spreadsheet, each with the exact amount in billionths of a dollar. */
export async function readInvoiceCsv(id: string, month: string): Promise<string> {
  const payer = await payerOf(id)
  const pages: string[] = []
  for (const query of queriesOf(payer, { groupBy: [...LINES, 'user', 'day'], ...periodOf(month), format: 'csv' })) {
    for await (const { csv = '' } of readPages(query)) {
      pages.push(pages.length === 0 ? csv : csv.slice(csv.indexOf('\n') + 1))
    }
  }
  return pages.join('')
}

/** This month and the ones before it, in which something was used. */
export async function readMonths(id: string): Promise<readonly Sum[]> {
  const now = Date.now()
  const rows = await readRows(await payerOf(id), {
    groupBy: ['day'],
    from: dateOf(now - 365 * DAY_MS),
    to: dateOf(now),
  })
  return sumBy(rows, ({ group }) => group['day']?.slice(0, 7) ?? '').toSorted(([a], [b]) => b.localeCompare(a))
}

/** What a customer with its teams has been billed this month, and what the vendor charged for it. */
export async function readTotals(id: string): Promise<Totals> {
  const rows = await readRows(await payerOf(id), {})
  return {
    requests: rows.reduce((sum, { requests }) => sum + requests, 0),
    billedNanoUsd: billed(rows),
    actualNanoUsd: rows.reduce((sum, { cost }) => sum + cost.actualNanoUsd, 0),
  }
}

export function sumBy(rows: readonly UsageReportRow[], nameOf: (row: UsageReportRow) => string): readonly Sum[] {
  const groups = new Map<string, UsageReportRow[]>()
  for (const row of rows) groups.set(nameOf(row), [...(groups.get(nameOf(row)) ?? []), row])
  return [...groups]
    .map(([name, group]) => [name, billed(group), group.reduce((sum, { requests }) => sum + requests, 0)] as const)
    .toSorted(([, a], [, b]) => b - a)
}

export function billed(rows: readonly UsageReportRow[]): number {
  return rows.reduce((sum, { cost }) => sum + cost.billedNanoUsd, 0)
}

/** A report has the usage of each customer alone, so an organization is the sum of itself and its teams. */
function queriesOf({ id, teams }: Payer, query: UsageQuery): readonly UsageQuery[] {
  return [id, ...teams.map(({ id }) => id)].map((customer) => ({ ...query, filter: { customer } }))
}

async function readRows(payer: Payer, query: UsageQuery): Promise<readonly UsageReportRow[]> {
  const rows: UsageReportRow[] = []
  for (const own of queriesOf(payer, query)) for await (const page of readPages(own)) rows.push(...page.rows)
  return rows
}

async function* readPages(query: UsageQuery): AsyncGenerator<UsageReport> {
  for (let after: string | null = ''; after !== null;) {
    const page: UsageReport = await gateway.usage.report({ ...query, ...(after !== '' && { after }) })
    yield page
    after = page.next
  }
}

function periodOf(month: string): { readonly from: string; readonly to: string } {
  const [year = 0, number = 0] = month.split('-').map(Number)
  return { from: `${month}-01`, to: dateOf(Date.UTC(year, number, 0)) }
}

function dateOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10)
}
