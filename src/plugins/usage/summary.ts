/** What a customer has used and may still use. Loaded with the first use. */
import { expects, type OptionCheck, optionsOf } from '../../core/check-options.ts'
import { toDollars, toNanoUsd } from '../../core/money.ts'
import { OTHER, periodOf, type Store } from '../../core/store.ts'
import type { LimitLevel } from '../../governance/caller.ts'
import { CONTEXT_ID_FORMAT, isContextId } from '../../governance/context.ts'
import { windowName, windowStart } from '../../governance/levels.ts'
import { type LimitAmounts, limitsOf, readAmounts } from '../../governance/limit-amounts.ts'
import { invalidFieldError } from '../../governance/page-query.ts'
import { isSafeId } from '../../governance/record-table.ts'
import type { LevelContext } from '../../governance/windows.ts'
import { addAll, dateOf, NO_AMOUNTS, type Sums, visitRows } from './report.ts'
import type {
  BilledUsage,
  BudgetSummary,
  PeriodSummary,
  RateLimitSummary,
  UsageSummary,
  UsageSummaryQuery,
} from './usage-api.ts'

/** Who has the limits of a summary. */
export interface FoundLevels {
  readonly levels: readonly LimitLevel[]
  /** When the customer was created, in milliseconds since 1970. */
  readonly createdAt: number
}

export interface SummaryDependencies {
  readonly store: Pick<Store, 'levels' | 'tallies'>
  readonly now: () => number
  /** Rejects with `not-found` for an unknown customer. */
  readonly findLevels: (query: UsageSummaryQuery) => Promise<FoundLevels>
  readonly levelContext: () => LevelContext
}

const DAY_MS = 86_400_000
/** Before this share of a window has passed, a forecast would be a guess. */
const MIN_ELAPSED_SHARE = 0.1

const contextId = expects(CONTEXT_ID_FORMAT, isContextId)

const checkQuery = optionsOf(
  {
    customer: expects('the id of a customer', (value) => typeof value === 'string' && isSafeId(value)),
    user: contextId,
    session: contextId,
  } satisfies Record<keyof UsageSummaryQuery, OptionCheck>,
  ['customer'],
  'an object, such as { customer: "acme" }',
  'field',
)

export async function summarizeUsage(
  query: UsageSummaryQuery,
  { store, now, findLevels, levelContext }: SummaryDependencies,
): Promise<UsageSummary> {
  const problem = checkQuery(query, '')
  if (problem !== undefined) throw invalidFieldError(problem.path || 'query', problem.text)
  const { customer, user, session } = query
  const { levels, createdAt } = await findLevels({ customer, user, session })
  const at = now()
  // Each request with the same last turn has a counter of its own.
  const limits = (await limitsOf(levels, at, levelContext())).filter(({ isPerTurn }) => isPerTurn !== true)
  const amounts = await readAmounts(store, limits)
  const forecasting = { at, createdAt }
  return {
    customer,
    user: user ?? null,
    session: session ?? null,
    at: iso(at),
    budgets: amounts.filter(({ limit }) => limit.kind === 'budget').map((found) => budgetOf(found, forecasting)),
    rateLimits: amounts.flatMap((found) => rateLimitOf(found, forecasting) ?? []),
    ...(await readPeriods(query, at, store)),
  }
}

interface Forecasting {
  readonly at: number
  readonly createdAt: number
}

/** The same amount for each unit of time since the window began, or since the customer was created in it. */
function forecastOf(
  { limit: { window, period }, spent }: LimitAmounts,
  { at, createdAt }: Forecasting,
): number | undefined {
  if (window.type !== 'calendar') return undefined
  const { start, end } = period
  const elapsed = at - Math.min(at, Math.max(start, createdAt))
  if (elapsed < MIN_ELAPSED_SHARE * (end - start)) return undefined
  return toNanoUsd(spent + (spent / elapsed) * (end - at))
}

function commonOf({ limit, resetsAt }: LimitAmounts): Omit<BudgetSummary, `${string}Usd` | 'raises'> {
  const { level, window, models = null } = limit
  return {
    // The levels of a summary have no other names.
    level: level === 'user' || level === 'session' ? level : 'customer',
    window: windowName(window),
    models,
    startsAt: window.type === 'idle' ? null : iso(windowStart(limit)),
    resetsAt: resetsAt === undefined ? null : iso(resetsAt),
  }
}

function budgetOf(found: LimitAmounts, forecasting: Forecasting): BudgetSummary {
  const { limit, spent, held, remaining } = found
  const forecast = forecastOf(found, forecasting)
  return {
    ...commonOf(found),
    limitNanoUsd: limit.max,
    limitUsd: dollars(limit.max),
    spentNanoUsd: spent,
    spentUsd: dollars(spent),
    heldNanoUsd: held,
    heldUsd: dollars(held),
    remainingNanoUsd: remaining,
    remainingUsd: dollars(remaining),
    raises: (limit.raises ?? []).map(({ amount, until }) => ({ addUsd: dollars(amount), until: iso(until) })),
    forecastNanoUsd: forecast ?? null,
    forecastUsd: forecast === undefined ? null : dollars(forecast),
  }
}

function rateLimitOf(found: LimitAmounts, forecasting: Forecasting): RateLimitSummary | undefined {
  const { limit, spent, held, remaining } = found
  if (limit.kind === 'budget') return undefined
  const forecast = forecastOf(found, forecasting) ?? null
  return { ...commonOf(found), unit: limit.kind, limit: limit.max, spent, held, remaining, forecast }
}

/** The usage of this month and of today by model. */
async function readPeriods(
  { customer, user, session }: UsageSummaryQuery,
  at: number,
  store: Pick<Store, 'tallies'>,
): Promise<Pick<UsageSummary, 'today' | 'month' | 'isComplete'>> {
  const { start } = periodOf(at, '1M')
  const today = periodOf(at, '1d').start
  const days = Array.from({ length: (today - start) / DAY_MS + 1 }, (_, index) => start + index * DAY_MS)
  const month = new Map<string, Sums>()
  const day = new Map<string, Sums>()
  let isComplete = true
  const selects = (wanted: string | undefined, value: string): boolean => {
    if (wanted === undefined || wanted === value) return true
    if (value === OTHER) isComplete = false
    return false
  }
  await visitRows(store, [`customer:${customer}`], days, (valueOf, amounts) => {
    if (!selects(user, valueOf('user')) || !selects(session, valueOf('session'))) return
    addTo(month, valueOf('model'), amounts)
    if (valueOf('day') === dateOf(today)) addTo(day, valueOf('model'), amounts)
  })
  return { today: periodSummary(today, day), month: periodSummary(start, month), isComplete }
}

function addTo(sums: Map<string, Sums>, model: string, amounts: Partial<Sums>): void {
  const sum = sums.get(model) ?? { ...NO_AMOUNTS }
  sums.set(model, sum)
  addAll(sum, amounts)
}

function periodSummary(start: number, sumsByModel: ReadonlyMap<string, Sums>): PeriodSummary {
  const total: Sums = { ...NO_AMOUNTS }
  for (const sums of sumsByModel.values()) addAll(total, sums)
  const models = [...sumsByModel.keys()].filter((model) => model !== '').toSorted()
  return {
    from: dateOf(start),
    ...billedUsage(total),
    models: models.map((model) => ({ model, ...billedUsage(sumsByModel.get(model) ?? NO_AMOUNTS) })),
  }
}

function billedUsage({ requests, prompt, completion, billed }: Readonly<Sums>): BilledUsage {
  return { requests, tokens: { prompt, completion }, billedNanoUsd: billed, billedUsd: dollars(billed) }
}

function dollars(amount: number): number {
  return toDollars(toNanoUsd(amount))
}

function iso(at: number): string {
  return new Date(at).toISOString()
}
