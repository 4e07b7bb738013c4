/**
 * npm run bench: the built gateway beside a bare relay, in one run, interleaved, medians of rounds with their spread.
 * Absolute times mean little on a shared machine; the ratios do. README.md describes the options.
 */
import { writeFileSync } from 'node:fs'
import { measureAllocations, measureGrowth, measureScenario, startAll } from './measure.ts'
import { figureOf, reportGoals, reportScenario, type Result } from './report.ts'
import { memoryWork, scenarios } from './scenarios.ts'
import { compileServers, isInstalled, startUpstream, type TargetName } from './targets.ts'

const groups = [...new Set(scenarios.map(({ group }) => group)), 'allocations', 'heap', 'savings']
const rounds = Number(process.env['BENCH_ROUNDS'] ?? 7)
const heapRequests = Number(process.env['BENCH_HEAP_REQUESTS'] ?? 40_000)
const wanted = process.env['BENCH_ONLY']?.split(',') ?? groups
const unknown = wanted.filter((group) => !groups.includes(group))
if (unknown.length > 0)
  throw new Error(`BENCH_ONLY names ${unknown.join(', ')}; expected some of ${groups.join(', ')}.`)

await compileServers()
const upstream = await startUpstream()
const results: Result[] = []
console.log(`${rounds} rounds. Divisor of each ratio: the relay that pipes pool.request of undici.`)
if (!isInstalled('portkey')) console.log('Portkey is not installed and is left out; see BENCH_PORTKEY in README.md.')

for (const scenario of scenarios) {
  if (!wanted.includes(scenario.group)) continue
  const measured = await measureScenario(scenario, upstream, rounds)
  results.push(...reportScenario(scenario, measured))
}

if (wanted.includes('allocations')) {
  console.log('\nAllocated on the heap per small request, KiB (2,000 requests)')
  await eachTarget(['relay', 'dispatch relay', 'web relay', 'ungoverned', 'governed', 'default'], async (target) => {
    const kib = (await measureAllocations(target, memoryWork)) / 1024
    console.log(`  ${target.name.padEnd(16)}${kib.toFixed(1)}`)
    if (target.name === 'governed')
      results.push({ what: 'KiB allocated: governed', goal: { goal: 40 }, ...figureOf([kib]) })
  })
}

if (wanted.includes('heap')) {
  console.log(`\nGrowth of the heap, bytes per request (${heapRequests} requests, after 20,000)`)
  await eachTarget(['relay', 'governed', 'default'], async (target) => {
    const bytes = await measureGrowth(target, memoryWork, heapRequests)
    console.log(`  ${target.name.padEnd(16)}${bytes.toFixed(0)}`)
    // Less than this is the noise of compiled code and of the collector.
    if (target.name !== 'relay') {
      results.push({ what: `bytes of growth: ${target.name}`, goal: { goal: 10 }, ...figureOf([bytes]) })
    }
  })
}

upstream.stop()
reportGoals(results)
writeFileSync(new URL('./results.json', import.meta.url), `${JSON.stringify(results, null, 2)}\n`)
if (wanted.includes('savings')) await import('./savings.ts')

async function eachTarget(
  names: readonly TargetName[],
  measure: (target: Awaited<ReturnType<typeof startAll>>[number]) => Promise<void>,
): Promise<void> {
  const targets = await startAll(names, upstream.url)
  for (const target of targets) await measure(target)
  for (const target of targets) target.stop()
}
