import { median, send, type Work } from './load.ts'
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
    for (const target of targets) measured.get(target.name)?.push(await measureRound(target, scenario, upstream, round))
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

async function measureRound(target: Target, scenario: Scenario, upstream: Upstream, round: number): Promise<Round> {
  const { warmUp, requests } = scenario
  const from = warmUp + round * requests
  const servedBefore = await upstream.ask('requests')
  const before = await target.ask('cpu')
  const { seconds, firstByte } = await send(target, scenario, from, from + requests)
  const after = await target.ask('cpu')
  const served = (await upstream.ask('requests')) - servedBefore
  const expected = scenario.hits === true && target.name === 'default' ? 0 : requests
  // Fails if a scenario of cache misses has hits, or the reverse, because it would then measure something else.
  if (served !== expected) {
    throw new Error(`${scenario.name}, ${target.name}: ${served} requests reached the upstream instead of ${expected}.`)
  }
  return { cpu: (after - before) / requests, perSecond: requests / seconds, firstByte }
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
