import { median, send, sendInTurn, type LoadResult, type Work } from './load.ts'
import type { Scenario } from './scenarios.ts'
import { isInstalled, startTarget, type Target, type TargetName } from './targets.ts'

/** Figures of one target in one round. */
export interface Round {
  /** CPU time per request in microseconds. */
  readonly cpu: number
  readonly perSecond: number
  readonly firstByte: number
}

/** Rounds by target. A target that is not installed is absent. */
export type Rounds = ReadonlyMap<TargetName, readonly Round[]>

type Upstream = Omit<Target, 'name'>

/** Starts new servers for a scenario, warms them up, and measures each target once per round. */
export async function measureScenario(scenario: Scenario, upstream: Upstream, rounds: number): Promise<Rounds> {
  const started = await startAll(['relay', ...scenario.targets], upstream.url)
  const targets: Target[] = []
  for (const target of started) if (await warmUp(target, scenario)) targets.push(target)
  const measured = new Map<TargetName, Round[]>(targets.map(({ name }) => [name, []]))
  for (let round = 0; round < rounds; round++) {
    const groups = scenario.figure === 'first byte' ? [targets] : targets.map((target) => [target])
    for (const group of groups) {
      const figures = await measureRound(group, scenario, upstream, round)
      for (const [index, { name }] of group.entries()) measured.get(name)?.push(...figures.slice(index, index + 1))
    }
  }
  for (const target of started) target.stop()
  return measured
}

/** Returns false if Portkey fails, which is then skipped. A failure of any other target ends the benchmark. */
async function warmUp(target: Target, scenario: Scenario): Promise<boolean> {
  try {
    await send(target, scenario, 0, scenario.warmUp)
    return true
  } catch (error) {
    if (target.name !== 'portkey') throw error
    console.log(`\n${scenario.name}: Portkey is skipped. ${String(error)}`)
    return false
  }
}

/** Measures the targets of a group together, and returns one round per target. */
async function measureRound(
  group: readonly Target[],
  scenario: Scenario,
  upstream: Upstream,
  round: number,
): Promise<readonly Round[]> {
  const { warmUp, requests } = scenario
  const from = warmUp + round * requests
  const servedBefore = await upstream.ask('requests')
  const before = await cpuOf(group)
  const results = await sendTo(group, scenario, from, from + requests)
  const after = await cpuOf(group)
  const served = (await upstream.ask('requests')) - servedBefore
  const missing = scenario.hits === true ? group.filter(({ name }) => name === 'default') : []
  const expected = requests * (group.length - missing.length)
  // Fails if a scenario of cache misses has hits, or the reverse, because it would then measure something else.
  if (served !== expected) {
    const names = group.map(({ name }) => name).join(', ')
    throw new Error(`${scenario.name}, ${names}: ${served} requests reached the upstream instead of ${expected}.`)
  }
  return results.map(({ seconds, firstByte }, index) => ({
    cpu: ((after[index] ?? 0) - (before[index] ?? 0)) / requests,
    perSecond: requests / seconds,
    firstByte,
  }))
}

function cpuOf(group: readonly Target[]): Promise<readonly number[]> {
  return Promise.all(group.map((target) => target.ask('cpu')))
}

async function sendTo(group: readonly Target[], work: Work, from: number, to: number): Promise<readonly LoadResult[]> {
  const [only] = group
  return only !== undefined && group.length === 1
    ? [await send(only, work, from, to)]
    : sendInTurn(group, work, from, to)
}

/** Starts the targets that are installed. */
export async function startAll(names: readonly TargetName[], upstreamUrl: string): Promise<readonly Target[]> {
  return Promise.all(names.filter(isInstalled).map((name) => startTarget(name, upstreamUrl)))
}

/** Returns the bytes allocated on the heap per request: the median of three rounds of 2,000 requests, after 4,000 others. */
export async function measureAllocations(target: Target, work: Work): Promise<number> {
  const REQUESTS = 2000
  await send(target, work, 0, 2 * REQUESTS)
  const perRequest: number[] = []
  for (let round = 2; round < 5; round++) {
    await target.ask('allocations:start')
    await send(target, work, round * REQUESTS, (round + 1) * REQUESTS)
    perRequest.push((await target.ask('allocations:stop')) / REQUESTS)
  }
  return median(perRequest)
}

/** Returns the heap growth per request in bytes, after 20,000 requests. */
export async function measureGrowth(target: Target, work: Work, requests: number): Promise<number> {
  const WARM_UP_REQUESTS = 20_000
  await send(target, work, 0, WARM_UP_REQUESTS)
  const before = await target.ask('heap')
  await send(target, work, WARM_UP_REQUESTS, WARM_UP_REQUESTS + requests)
  const after = await target.ask('heap')
  return (after - before) / requests
}
