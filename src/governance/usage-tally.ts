import { type DurationCode, type Period, periodOf, type Tally } from '../core/store.ts'
import { keyOwner, sharedOwner } from './limits.ts'
import type { Used } from './reservation.ts'
import type { VirtualKey } from './virtual-key.ts'

/** Sums of a key over one window. */
export type UsageSums = Readonly<Record<UsageField, number>>

export type UsageField = 'requests' | 'prompt' | 'completion' | 'saved' | 'theoretical' | 'actual' | 'billed'

export const USAGE_FIELDS: readonly UsageField[] = [
  'requests',
  'prompt',
  'completion',
  'saved',
  'theoretical',
  'actual',
  'billed',
]

const DAY = 86_400_000
/** Retention of tallies after their window, in milliseconds. Tallies of weeks and months are sums of days. */
const RETENTION: Readonly<Record<DurationCode, number>> = {
  '1m': 2 * DAY,
  '1h': 2 * DAY,
  '1d': 400 * DAY,
  '1w': 0,
  '1M': 0,
}
/** The tallies of a shared budget are read for windows of at most a month. */
const BILLED_RETENTION = 32 * DAY
const MAX_MODEL = 200

/** A tally of one window that the requests of a key are added to. */
export interface TallyTarget {
  readonly name: string
  /** `total`: all amounts. `models`: the amounts of each model. `billed`: the billed amount only, for a shared budget. */
  readonly kind: 'total' | 'models' | 'billed'
  /** The field of the billed amount of this hour. Present in tallies of days. */
  readonly hourField: string | undefined
  readonly expiresAt: number
}

/** Returns the tallies of a request: its day, and its hour or minute if the key's budget has such windows. */
export function tallyTargets(key: VirtualKey, at: number): readonly TallyTarget[] {
  const every = reportWindow(key)
  const codes: readonly DurationCode[] = every === '1h' || every === '1m' ? ['1d', every] : ['1d']
  const targets = codes.flatMap((code): readonly TallyTarget[] => {
    const { start, end } = periodOf(at, code)
    const [expiresAt, hourField] = [end + RETENTION[code], code === '1d' ? billedInHour(at) : undefined]
    return [
      { name: totalName(key.id, code, start), kind: 'total', hourField, expiresAt },
      { name: modelsName(key.id, code, start), kind: 'models', hourField, expiresAt },
    ]
  })
  if (key.budgetId === undefined) return targets
  const { start, end } = periodOf(at, '1d')
  const name = billedName(sharedOwner(key.budgetId), start)
  return [...targets, { name, kind: 'billed', hourField: billedInHour(at), expiresAt: end + BILLED_RETENTION }]
}

/** Returns the amounts that a request adds to the tallies. */
export function talliesOf(targets: readonly TallyTarget[], used: Used): readonly Tally[] {
  const amounts: UsageSums = {
    requests: 1,
    prompt: used.promptTokens,
    completion: used.completionTokens,
    saved: used.savedTokens,
    theoretical: used.theoretical,
    actual: used.actual,
    billed: used.billed,
  }
  const byModel = isAnswered(used) ? amountsByModel(used.model, amounts) : undefined
  const tallies: Tally[] = []
  for (const { name, kind, hourField, expiresAt } of targets) {
    if (kind === 'total') {
      tallies.push({ name, amounts: withHour(amounts, hourField, used.billed), expiresAt })
    } else if (kind === 'models') {
      if (byModel !== undefined) tallies.push({ name, amounts: byModel, expiresAt })
    } else if (used.billed > 0) {
      tallies.push({ name, amounts: withHour({ billed: used.billed }, hourField, used.billed), expiresAt })
    }
  }
  return tallies
}

function withHour(
  amounts: Readonly<Record<string, number>>,
  hourField: string | undefined,
  billed: number,
): Readonly<Record<string, number>> {
  return hourField === undefined || billed === 0 ? amounts : { ...amounts, [hourField]: billed }
}

/** Maximum number of models with cached field names. */
const MAX_MODELS = 200
const fieldNames = new Map<string, readonly (readonly [UsageField, string])[]>()

function amountsByModel(model: string, amounts: UsageSums): Readonly<Record<string, number>> {
  const byModel: Record<string, number> = {}
  for (const [field, name] of fieldNamesOf(model.slice(0, MAX_MODEL))) byModel[name] = amounts[field]
  return byModel
}

function fieldNamesOf(model: string): readonly (readonly [UsageField, string])[] {
  const known = fieldNames.get(model)
  if (known !== undefined) return known
  const names = USAGE_FIELDS.map((field) => [field, `${field} ${model}`] as const)
  if (fieldNames.size >= MAX_MODELS) fieldNames.clear()
  fieldNames.set(model, names)
  return names
}

/** Requests without usage are not counted by model, because callers can invent any number of model names. */
function isAnswered(used: Used): boolean {
  return used.promptTokens > 0 || used.completionTokens > 0 || used.theoretical > 0
}

/** Returns the window of a key's report: that of its budget, or a month. */
export function reportWindow(key: VirtualKey): DurationCode {
  return key.budget?.every ?? '1M'
}

/** Returns the names of the tallies whose sums are the report of one period. */
export function tallyNames(
  id: string,
  every: DurationCode,
  period: Period,
): { readonly totals: readonly string[]; readonly models: readonly string[] } {
  const code: DurationCode = every === '1h' || every === '1m' ? every : '1d'
  const starts: number[] = []
  for (let start = period.start; start < period.end; start = periodOf(start, code).end) starts.push(start)
  return {
    totals: starts.map((start) => totalName(id, code, start)),
    models: starts.map((start) => modelsName(id, code, start)),
  }
}

/** Adds several tallies. */
export function sumTallies(tallies: readonly Readonly<Record<string, number>>[], suffix: string = ''): UsageSums {
  const sum = (field: UsageField): number => tallies.reduce((total, tally) => total + (tally[field + suffix] ?? 0), 0)
  return {
    requests: sum('requests'),
    prompt: sum('prompt'),
    completion: sum('completion'),
    saved: sum('saved'),
    theoretical: sum('theoretical'),
    actual: sum('actual'),
    billed: sum('billed'),
  }
}

/** Returns the model names in tallies by model, in alphabetical order. */
export function modelsIn(tallies: readonly Readonly<Record<string, number>>[]): readonly string[] {
  const names = tallies.flatMap((tally) => Object.keys(tally).filter((field) => field.startsWith('requests ')))
  return [...new Set(names)].map((field) => field.slice('requests '.length)).toSorted()
}

/** Returns the name of the tally with the billed amounts of an owner on one day. */
export function billedName(owner: string, day: number): string {
  return owner.startsWith(KEY) ? totalName(owner.slice(KEY.length), '1d', day) : `billed:${owner}:1d:${day}`
}

const KEY = keyOwner('')

/** Returns the field of such a tally with the amount of one hour. */
export function billedInHour(at: number): string {
  return `billed@${new Date(at).getUTCHours()}`
}

function totalName(id: string, code: DurationCode, start: number): string {
  return `usage:${id}:${code}:${start}`
}

function modelsName(id: string, code: DurationCode, start: number): string {
  return `usage-by-model:${id}:${code}:${start}`
}
