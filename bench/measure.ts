import { median, send, type Work } from './load.ts'
import type { Scenario } from './scenarios.ts'
import { isInstalled, startTarget, type Target, type TargetName } from './targets.ts'

/** One target in one round. */
export interface Round {
  /** Microseconds of processor time per request. */
  readonly cpu: number
  readonly perSecond: number
  readonly firstByte: number
}

/** The rounds of each target; a target that is not installed is absent. */
export type Rounds = ReadonlyMap<TargetName, readonly Round[]>

type Upstream = Omit<Target, 'name'>

/** Runs a scenario with servers of its own: a warm-up, then each target once per round, in turn. */
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

/** Returns false for a peer that fails, which is then left out. A failure of anything of ours ends the bench. */
async function warmUp(target: Target, scenario: Scenario): Promise<boolean> {
  try {
    await send(target, scenario, 0, scenario.warmUp)
    return true
  } catch (error) {
    if (target.name !== 'portkey') throw error
    console.log(`\n${scenario.name}: Portkey is left out. ${String(error)}`)
    return false
  }
}

async function measureRound(target: Target, scenario: Scenario, upstream: Upstream, round: number): Promise<Round> {
  const { warmUp, relayRequests = scenario.requests } = scenario
  const requests = target.name === 'relay' ? relayRequests : scenario.requests
  const from = warmUp + round * requests
  const servedBefore = await upstream.ask('requests')
  const before = await target.ask('cpu')
  const { seconds, firstByte } = await send(target, scenario, from, from + requests)
  const after = await target.ask('cpu')
  const served = (await upstream.ask('requests')) - servedBefore
  const expected = scenario.hits === true && target.name === 'default' ? 0 : requests
  // A scenario of misses that hits the cache, or the reverse, would measure something else.
  if (served !== expected) {
    throw new Error(`${scenario.name}, ${target.name}: ${served} requests reached the upstream instead of ${expected}.`)
  }
  return { cpu: (after - before) / requests, perSecond: requests / seconds, firstByte }
}

/** Starts the targets that are installed. */
export async function startAll(names: readonly TargetName[], upstreamUrl: string): Promise<readonly Target[]> {
  return Promise.all(names.filter(isInstalled).map((name) => startTarget(name, upstreamUrl)))
}

/** Bytes allocated on the heap per request: medians of three times 2,000 requests, after 4,000 others. */
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

/** Bytes by which the heap grows per request, from 20,000 requests on. */
export async function measureGrowth(target: Target, work: Work, requests: number): Promise<number> {
  const SETTLED = 20_000
  await send(target, work, 0, SETTLED)
  const before = await target.ask('heap')
  await send(target, work, SETTLED, SETTLED + requests)
  const after = await target.ask('heap')
  return (after - before) / requests
}
