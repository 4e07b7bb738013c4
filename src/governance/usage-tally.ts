import type { Tally } from '../core/ports.ts'
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
const LONGEST_MODEL = 200

/** What a request adds to the reports: to its day, and to the hour or minute where the key's budget has such windows. */
export function talliesOf(key: VirtualKey, used: Used, at: number): readonly Tally[] {
  const every = reportWindow(key)
  const codes: readonly DurationCode[] = every === '1h' || every === '1m' ? ['1d', every] : ['1d']
  return codes.flatMap((code) => tallies(key.id, code, used, at))
}

function tallies(id: string, code: DurationCode, used: Used, at: number): readonly Tally[] {
  const period = periodOf(at, code)
  const expiresAt = period.end + KEPT[code]
  const amounts: UsageSums = {
    requests: 1,
    prompt: used.promptTokens,
    completion: used.completionTokens,
    saved: used.savedTokens,
    theoretical: used.theoretical,
    actual: used.actual,
    billed: used.billed,
  }
  const total: Tally = { name: totalName(id, code, period.start), amounts, expiresAt }
  if (!isAnswered(used)) return [total]
  const model = used.model.slice(0, LONGEST_MODEL)
  const byModel = Object.fromEntries(USAGE_FIELDS.map((field) => [`${field} ${model}`, amounts[field]]))
  return [total, { name: modelsName(id, code, period.start), amounts: byModel, expiresAt }]
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
