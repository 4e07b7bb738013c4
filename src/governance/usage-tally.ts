import type { Tally } from '../core/store.ts'
import { periodOf, type DurationCode, type Period } from '../core/period.ts'
import type { Used } from './reservation.ts'
import type { VirtualKey } from './virtual-key.ts'

/** Sums of a key over one window, by the names of their fields. */
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
/** Reports reach back over a year; those of hours and minutes two days. */
const KEPT: Readonly<Record<DurationCode, number>> = {
  '1m': 2 * DAY,
  '1h': 2 * DAY,
  '1d': 400 * DAY,
  '1w': 0,
  '1M': 0,
}
const MAX_MODEL = 200

/** The sums of one window that a request of a key is added to. */
export interface TallyTarget {
  readonly total: string
  readonly byModel: string
  readonly expiresAt: number
}

/** Requests are added to their day, and to the hour or minute where the key's budget has such windows. */
export function tallyTargets(key: VirtualKey, at: number): readonly TallyTarget[] {
  const every = reportWindow(key)
  const codes: readonly DurationCode[] = every === '1h' || every === '1m' ? ['1d', every] : ['1d']
  return codes.map((code) => {
    const { start, end } = periodOf(at, code)
    const [total, byModel] = [totalName(key.id, code, start), modelsName(key.id, code, start)]
    return { total, byModel, expiresAt: end + KEPT[code] }
  })
}

/** What a request adds to the reports. */
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
  for (const { total, byModel: name, expiresAt } of targets) {
    tallies.push({ name: total, amounts, expiresAt })
    if (byModel !== undefined) tallies.push({ name, amounts: byModel, expiresAt })
  }
  return tallies
}

/** Models whose field names are remembered. */
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

/** Names of models that never answered stay out of the reports: callers may invent as many as they like. */
function isAnswered(used: Used): boolean {
  return used.promptTokens > 0 || used.completionTokens > 0 || used.theoretical > 0
}

/** The window of a key's report: its budget's, else the month. */
export function reportWindow(key: VirtualKey): DurationCode {
  return key.budget?.every ?? '1M'
}

/** The tallies that together make the report of one period. */
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

/** The sums of several tallies. */
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

/** The models that tallies by model speak of, in alphabetical order. */
export function modelsIn(tallies: readonly Readonly<Record<string, number>>[]): readonly string[] {
  const names = tallies.flatMap((tally) => Object.keys(tally).filter((field) => field.startsWith('requests ')))
  return [...new Set(names)].map((field) => field.slice('requests '.length)).toSorted()
}

function totalName(id: string, code: DurationCode, start: number): string {
  return `usage:${id}:${code}:${start}`
}

function modelsName(id: string, code: DurationCode, start: number): string {
  return `usage-by-model:${id}:${code}:${start}`
}
