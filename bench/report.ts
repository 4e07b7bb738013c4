import { median } from './load.ts'
import type { Round, Rounds } from './measure.ts'
import type { Goal, Scenario } from './scenarios.ts'

/** Median, minimum and maximum over the rounds of one run. */
export interface Figure {
  readonly median: number
  readonly min: number
  readonly max: number
}

/** A row of the final table of goals. */
export interface Result extends Figure {
  readonly measurement: string
  readonly goal: Goal
}

export function figureOf(values: readonly number[]): Figure {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) }
}

/** Prints one row per target and returns the results that have a goal. */
export function reportScenario(scenario: Scenario, rounds: Rounds): readonly Result[] {
  const { name, requests, concurrency, figure = 'cpu', goals, comparison } = scenario
  const relay = rounds.get('relay') ?? []
  const results: Result[] = []
  const lines: string[][] = [['', 'CPU µs', 'CPU ÷ relay', 'min ÷ min', 'rate ÷ relay', 'first byte ms', 'added ms']]
  for (const [target, targetRounds] of rounds) {
    const cpu = compare(targetRounds, relay, (round, divisor) => round.cpu / divisor.cpu)
    const rate = compare(targetRounds, relay, (round, divisor) => round.perSecond / divisor.perSecond)
    const added = compare(targetRounds, relay, (round, divisor) => round.firstByte - divisor.firstByte)
    const firstByte = median(targetRounds.map((round) => round.firstByte))
    lines.push([
      target,
      rounded(median(targetRounds.map((round) => round.cpu))),
      spread(cpu),
      rounded(minCpu(targetRounds) / minCpu(relay)),
      spread(rate),
      rounded(firstByte),
      spread(added),
    ])
    const goal = goals[target]
    if (goal !== undefined)
      results.push({ measurement: `${name}: ${target}`, goal, ...(figure === 'cpu' ? cpu : added) })
  }
  console.log(`\n${name} (${requests} requests per round, ${concurrency} at once)`)
  printTable(lines)
  if (comparison !== undefined) {
    const ratio = compare(
      rounds.get(comparison.of) ?? [],
      rounds.get(comparison.with) ?? [],
      (round, divisor) => round.cpu / divisor.cpu,
    )
    results.push({ measurement: `${name}: ${comparison.of} ÷ ${comparison.with}`, goal: comparison.goal, ...ratio })
  }
  return results
}

/** Compares rounds that ran one after the other, so that load on the machine affects both. */
function compare(
  rounds: readonly Round[],
  divisor: readonly Round[],
  ratio: (round: Round, divisor: Round) => number,
): Figure {
  return figureOf(
    rounds.flatMap((round, index) => (divisor[index] === undefined ? [] : [ratio(round, divisor[index])])),
  )
}

/** On a busy machine, the minimum is closest to the figure of an idle one. */
function minCpu(rounds: readonly Round[]): number {
  return Math.min(...rounds.map(({ cpu }) => cpu))
}

export function reportGoals(results: readonly Result[]): void {
  if (results.length === 0) return
  console.log('\nGoals')
  const lines = results.map(({ measurement, goal: { goal, limit = goal }, ...figure }) => [
    measurement,
    spread(figure),
    `${goal}`,
    `${limit}`,
    figure.median <= goal ? 'met' : figure.median <= limit ? 'within the limit' : 'MISSED',
  ])
  printTable([['', 'median (min..max)', 'goal', 'limit', ''], ...lines])
}

export function printTable(lines: readonly (readonly string[])[]): void {
  const widths = (lines[0] ?? []).map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)))
  for (const line of lines)
    console.log(
      `  ${line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd()}`,
    )
}

function spread({ median, min, max }: Figure): string {
  return `${rounded(median)} (${rounded(min)}..${rounded(max)})`
}

function rounded(value: number): string {
  return Math.abs(value) >= 100 ? `${Math.round(value)}` : `${Math.round(value * 100) / 100}`
}
