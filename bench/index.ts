/**
 * npm run bench: measures the built gateway and a relay in one run, round by round, and prints medians with their spread.
 * On a shared machine, only the ratios are comparable between runs. README.md describes the options.
 */
import { writeFileSync } from 'node:fs'
import { measureAllocations, measureGrowth, measureScenario, startAll } from './measure.ts'
import { figureOf, reportGoals, reportScenario, type Result } from './report.ts'
import { memoryWork, scenarios } from './scenarios.ts'
import { compileServers, isInstalled, startUpstream, type TargetName } from './targets.ts'

const groups = [...new Set(scenarios.map(({ group }) => group)), 'allocations', 'heap', 'savings']
const rounds = Number(process.env['BENCH_ROUNDS'] ?? 7)
const heapRequests = Number(process.env['BENCH_HEAP_REQUESTS'] ?? 40_000)
const selected = process.env['BENCH_ONLY']?.split(',') ?? groups
const unknown = selected.filter((group) => !groups.includes(group))
if (unknown.length > 0)
  throw new Error(`BENCH_ONLY contains unknown groups: ${unknown.join(', ')}. Use any of ${groups.join(', ')}.`)

await compileServers()
const upstream = await startUpstream()
const results: Result[] = []
console.log(`${rounds} rounds. Ratios are relative to the relay, which pipes pool.request of undici.`)
if (!isInstalled('portkey')) console.log('Portkey is not installed and is skipped. See BENCH_PORTKEY in README.md.')

for (const scenario of scenarios) {
  if (!selected.includes(scenario.group)) continue
  const measured = await measureScenario(scenario, upstream, rounds)
  results.push(...reportScenario(scenario, measured))
}

if (selected.includes('allocations')) {
  console.log('\nHeap allocations per small request, KiB (2,000 requests)')
  await forEachTarget(['relay', 'dispatch relay', 'web relay', 'ungoverned', 'governed', 'default'], async (target) => {
    const kib = (await measureAllocations(target, memoryWork)) / 1024
    console.log(`  ${target.name.padEnd(16)}${kib.toFixed(1)}`)
    if (target.name === 'governed')
      results.push({ measurement: 'KiB allocated: governed', goal: { goal: 40 }, ...figureOf([kib]) })
  })
}

if (selected.includes('heap')) {
  console.log(`\nHeap growth, bytes per request (${heapRequests} requests, after 20,000)`)
  await forEachTarget(['relay', 'governed', 'default'], async (target) => {
    const bytes = await measureGrowth(target, memoryWork, heapRequests)
    console.log(`  ${target.name.padEnd(16)}${bytes.toFixed(0)}`)
    // Smaller values are noise from compiled code and garbage collection.
    if (target.name !== 'relay') {
      results.push({ measurement: `bytes of growth: ${target.name}`, goal: { goal: 10 }, ...figureOf([bytes]) })
    }
  })
}

upstream.stop()
reportGoals(results)
writeFileSync(new URL('./results.json', import.meta.url), `${JSON.stringify(results, null, 2)}\n`)
if (selected.includes('savings')) await import('./savings.ts')

async function forEachTarget(
  names: readonly TargetName[],
  measure: (target: Awaited<ReturnType<typeof startAll>>[number]) => Promise<void>,
): Promise<void> {
  const targets = await startAll(names, upstream.url)
  for (const target of targets) await measure(target)
  for (const target of targets) target.stop()
}
