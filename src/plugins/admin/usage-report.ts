import { toNanoUsd, toCents, toDollars } from '../../core/money.ts'
import { type DurationCode, OTHER, type Period, periodOf, type Store } from '../../core/store.ts'
import { calendarBudget, readSpent, type BudgetWindow } from '../../governance/balances.ts'
import { counterName, keyOwner, type LimitKind, sharedOwner } from '../../governance/limits.ts'
import { USAGE_FIELDS, type UsageSums } from '../../governance/settlements.ts'
import type { SharedLimits } from '../../governance/stored-records.ts'
import { parseRow, rowTallyNames } from '../../governance/usage-rows.ts'
import { currentLimits, modelTallyName, reportWindow, totalTallyName } from '../../governance/windows.ts'
import { UNLIMITED, type Budget, type VirtualKey } from '../../governance/virtual-key.ts'

/** Requests, tokens and money in a window. */
export interface UsageTotals {
  readonly requests: number
  /** `saved` is the number of prompt tokens that were not sent upstream. */
  readonly tokens: {
    readonly prompt: number
    readonly completion: number
    readonly total: number
    readonly saved: number
  }
  /** Dollars, rounded to six decimals. Before rounding, `savingsUsd` equals `theoreticalUsd` minus `actualUsd`. */
  readonly cost: {
    /** At list price, without optimization. */
    readonly theoreticalUsd: number
    /** Paid to upstreams. */
    readonly actualUsd: number
    /** Billed to the key. A response is billed at its theoretical cost times the margin; a cache hit is free. */
    readonly billedUsd: number
    readonly savingsUsd: number
  }
}

/** Usage of one model in a window. */
export interface ModelUsage extends UsageTotals {
  readonly model: string
}

/** Usage of a key in the current window of its own budget, or in this month if it has no budget of its own. */
export interface KeyUsage extends UsageTotals {
  readonly keyId: string
  /** ISO 8601. */
  readonly periodStart: string
  /** Amount billed in the window, in cents, rounded half up. */
  readonly currentUsageCents: number
  /** The key's own budget. 9007199254740991 if it has none. */
  readonly budgetLimitCents: number
  /** ISO 8601. */
  readonly budgetResetsAt: string
  readonly byModel: readonly ModelUsage[]
}

/** Request and token limits of a key. Without a limit, both amounts are 9007199254740991. Times are ISO 8601. */
export interface KeyRateLimit {
  readonly requestLimit: number
  readonly requestRemaining: number
  readonly requestResetAt: string
  readonly tokenLimit: number
  readonly tokenRemaining: number
  readonly tokenResetAt: string
}

/** Remaining amounts of a key. Without a limit, both amounts are 9007199254740991. Times are ISO 8601. */
export interface KeyLimits {
  readonly remainingRequests: number
  readonly requestLimit: number
  readonly requestResetAt: string
  readonly remainingTokens: number
  readonly tokenLimit: number
  readonly tokenResetAt: string
  readonly remainingBudgetCents: number
  readonly budgetLimitCents: number
  readonly budgetResetsAt: string
}

export interface UsageReports {
  limits(key: VirtualKey): Promise<KeyLimits>
  rateLimit(key: VirtualKey): Promise<KeyRateLimit>
  usage(key: VirtualKey): Promise<KeyUsage>
  spentCents(keys: readonly VirtualKey[]): Promise<readonly number[]>
  budgetStatuses(budgets: readonly Budget[]): Promise<ReadonlyMap<string, BudgetStatus>>
}

export interface BudgetStatus {
  readonly spentCents: number
  readonly resetsAt: string
}

interface LimitStatus {
  readonly max: number
  readonly remaining: number
  readonly resetAt: string
}

export function createUsageReports(dependencies: {
  readonly store: Store
  readonly now: () => number
  readonly shared: SharedLimits
}): UsageReports {
  const { store, now, shared } = dependencies

  async function limitStatuses(key: VirtualKey): Promise<(kind: LimitKind) => LimitStatus> {
    const at = now()
    const limits = await currentLimits(key, shared, at)
    const budgets = limits.filter(({ kind }) => kind === 'budget')
    const rateLimits = limits.filter(({ kind }) => kind !== 'budget')
    const levels = [
      ...(rateLimits.length === 0 ? [] : await store.levels(rateLimits.map((limit) => limit.counter))),
      ...(await readSpent(
        store,
        budgets.flatMap((limit) => calendarBudget(limit) ?? []),
        at,
      )),
    ]
    const statuses = [...rateLimits, ...budgets].map(({ kind, max, period }, index) => {
      const { spent, held } = levels[index] ?? { spent: 0, held: 0 }
      // Held requests and tokens count as used, because a new reservation cannot claim them. A budget counts only billed
      // amounts, as the usage report does.
      const used = kind === 'budget' ? spent : spent + held
      return { kind, max, remaining: Math.max(0, max - used), resetAt: iso(period.end) }
    })
    const resetAt = iso(periodOf(at, '1h').end)
    const unlimited: LimitStatus = { max: UNLIMITED, remaining: UNLIMITED, resetAt }
    return (kind) =>
      statuses.filter((status) => status.kind === kind).toSorted((a, b) => a.remaining - b.remaining)[0] ?? unlimited
  }

  async function limits(key: VirtualKey): Promise<KeyLimits> {
    const statusOf = await limitStatuses(key)
    const [requests, tokens, budget] = [statusOf('requests'), statusOf('tokens'), statusOf('budget')]
    return {
      remainingRequests: requests.remaining,
      requestLimit: requests.max,
      requestResetAt: requests.resetAt,
      remainingTokens: tokens.remaining,
      tokenLimit: tokens.max,
      tokenResetAt: tokens.resetAt,
      remainingBudgetCents: toCentsOrUnlimited(budget.remaining),
      budgetLimitCents: toCentsOrUnlimited(budget.max),
      budgetResetsAt: budget.resetAt,
    }
  }

  async function rateLimit(key: VirtualKey): Promise<KeyRateLimit> {
    const statusOf = await limitStatuses(key)
    const [requests, tokens] = [statusOf('requests'), statusOf('tokens')]
    return {
      requestLimit: requests.max,
      requestRemaining: requests.remaining,
      requestResetAt: requests.resetAt,
      tokenLimit: tokens.max,
      tokenRemaining: tokens.remaining,
      tokenResetAt: tokens.resetAt,
    }
  }

  async function usage(key: VirtualKey): Promise<KeyUsage> {
    const every = reportWindow(key)
    const period = periodOf(now(), every)
    const names = tallyNames(key.id, every, period)
    const tallies = await store.tallies([...names.totals, ...names.models, ...names.rows])
    const modelsEnd = names.totals.length + names.models.length
    const sumsByModel = sumByModel(tallies.slice(names.totals.length, modelsEnd), tallies.slice(modelsEnd))
    const [spent = 0] = await spentCents([key])
    return {
      keyId: key.id,
      periodStart: iso(period.start),
      currentUsageCents: spent,
      budgetLimitCents: toCentsOrUnlimited(key.budget?.max ?? UNLIMITED),
      budgetResetsAt: iso(period.end),
      ...toUsageTotals(sumTallies(tallies.slice(0, names.totals.length))),
      byModel: [...sumsByModel.keys()]
        .toSorted()
        .map((model) => ({ model, ...toUsageTotals(sumsOf(sumsByModel.get(model))) })),
    }
  }

  async function spentCents(keys: readonly VirtualKey[]): Promise<readonly number[]> {
    return readSpentCents(keys.map((key) => ({ owner: keyOwner(key.id), every: reportWindow(key) })))
  }

  async function budgetStatuses(budgets: readonly Budget[]): Promise<ReadonlyMap<string, BudgetStatus>> {
    const spent = await readSpentCents(budgets.map(({ id, limit }) => ({ owner: sharedOwner(id), every: limit.every })))
    return new Map(
      budgets.map(({ id, limit }, index) => [
        id,
        { spentCents: spent[index] ?? 0, resetsAt: iso(periodOf(now(), limit.every).end) },
      ]),
    )
  }

  async function readSpentCents(owners: readonly Pick<BudgetWindow, 'owner' | 'every'>[]): Promise<readonly number[]> {
    const at = now()
    const windows = owners.map(({ owner, every }) => {
      const period = periodOf(at, every)
      return { owner, every, period, counter: counterName('budget', owner, every, period) }
    })
    return (await readSpent(store, windows, at)).map(({ spent }) => toCents(toNanoUsd(spent)))
  }

  return { limits, rateLimit, usage, spentCents, budgetStatuses }
}

function toUsageTotals(sums: UsageSums): UsageTotals {
  return {
    requests: sums.requests,
    tokens: {
      prompt: sums.prompt,
      completion: sums.completion,
      total: sums.prompt + sums.completion,
      saved: sums.saved,
    },
    cost: {
      theoreticalUsd: toDollars(toNanoUsd(sums.theoretical)),
      actualUsd: toDollars(toNanoUsd(sums.actual)),
      billedUsd: toDollars(toNanoUsd(sums.billed)),
      savingsUsd: toDollars(toNanoUsd(sums.theoretical - sums.actual)),
    },
  }
}

function toCentsOrUnlimited(amount: number): number {
  return amount === UNLIMITED ? UNLIMITED : toCents(toNanoUsd(amount))
}

function iso(at: number): string {
  return new Date(at).toISOString()
}

function tallyNames(
  id: string,
  every: DurationCode,
  period: Period,
): Readonly<Record<'totals' | 'models' | 'rows', readonly string[]>> {
  const code: DurationCode = every === '1h' || every === '1m' ? every : '1d'
  const starts: number[] = []
  for (let start = period.start; start < period.end; start = periodOf(start, code).end) starts.push(start)
  return {
    totals: starts.map((start) => totalTallyName(id, code, start)),
    models: starts.map((start) => modelTallyName(id, code, start)),
    rows: code === '1d' ? starts.flatMap((start) => rowTallyNames(keyOwner(id), start)) : [],
  }
}

function sumTallies(tallies: readonly Readonly<Record<string, number>>[]): UsageSums {
  return sumsOf(Object.fromEntries(USAGE_FIELDS.map((field) => [field, sumOf(tallies, field)])))
}

function sumOf(tallies: readonly Readonly<Record<string, number>>[], field: string): number {
  return tallies.reduce((total, tally) => total + (tally[field] ?? 0), 0)
}

function sumsOf(sums: Readonly<Record<string, number>> = {}): UsageSums {
  return Object.fromEntries(USAGE_FIELDS.map((field) => [field, sums[field] ?? 0])) as UsageSums
}

/** The fields are `<amount> <model>`, or `<amount> <row>` in tallies of rows. */
function sumByModel(
  models: readonly Readonly<Record<string, number>>[],
  rows: readonly Readonly<Record<string, number>>[],
): ReadonlyMap<string, Readonly<Record<string, number>>> {
  const sums = new Map<string, Record<string, number>>()
  const add = (tally: Readonly<Record<string, number>>, modelOf: (suffix: string) => string): void => {
    for (const [name, amount] of Object.entries(tally)) {
      const space = name.indexOf(' ')
      const model = modelOf(name.slice(space + 1))
      if (model === '') continue
      const sum = sums.get(model) ?? {}
      sums.set(model, sum)
      const field = name.slice(0, space)
      sum[field] = (sum[field] ?? 0) + amount
    }
  }
  for (const tally of models) add(tally, (model) => model)
  for (const tally of rows) add(tally, (row) => parseRow(row)?.model ?? OTHER)
  return sums
}
