/**
 * npm run bench:cache -- --data ../shared/data [--entries 100000]
 *
 * Prints false hits and recall with and without the guard, the time of lookups compared with a plain scan, and the CPU
 * time of the cache for one request compared with JSON.parse and JSON.stringify of its body.
 */
import { parseArgs } from 'node:util'
import { timeLookups, type LookupFigures, type Times } from './lookups.ts'
import { THRESHOLDS, groupBy, hitRates, readPairs, type HitRate } from './pairs.ts'
import { timeRequests } from './requests.ts'

const { values } = parseArgs({ options: { data: { type: 'string' }, entries: { type: 'string', default: '100000' } } })

if (values.data === undefined) console.log('Without --data, false hits and recall are skipped.\n')
else await printHits(values.data)
for (const entries of [10, 256, Number(values.entries)]) {
  for (const threshold of [0.95, 0.85]) printLookups(await timeLookups(entries, threshold))
}
await printRequests()

async function printHits(folder: string): Promise<void> {
  const rates = await hitRates(readPairs(folder))
  for (const same of [false, true]) {
    console.log(same ? '\nRecall (share of pairs of equal questions)\n' : 'False hits (pairs of different questions)\n')
    console.log(`| kind | pairs | ${THRESHOLDS.map((at) => `offline ${at}`).join(' | ')} | constant, any |`)
    console.log(`|---|---|${'---|'.repeat(THRESHOLDS.length + 1)}`)
    const kinds = groupBy(
      rates.filter((rate) => rate.same === same),
      (rate) => rate.kind,
    )
    for (const [kind, group] of kinds) printRow(kind, group)
    printRow('all', sums([...kinds.values()].flat()))
  }
  console.log('\nEach cell: without the guard → with the guard.\n')
}

function sums(rates: readonly HitRate[]): readonly HitRate[] {
  const groups = groupBy(rates, (rate) => `${rate.embedder} ${rate.threshold}`)
  return [...groups.values()].map((group) =>
    group.reduce((sum, rate) => ({
      ...sum,
      pairs: sum.pairs + rate.pairs,
      withoutGuard: sum.withoutGuard + rate.withoutGuard,
      withGuard: sum.withGuard + rate.withGuard,
    })),
  )
}

function printRow(kind: string, group: readonly HitRate[]): void {
  const [first] = group
  if (first === undefined) return
  const cell = (rate: HitRate | undefined): string => {
    if (rate === undefined) return ''
    const share = (count: number): string => `${((100 * count) / rate.pairs).toFixed(1)}%`
    return rate.same
      ? `${share(rate.withoutGuard)} → ${share(rate.withGuard)}`
      : `${rate.withoutGuard} → ${rate.withGuard}`
  }
  const offline = THRESHOLDS.map((threshold) =>
    cell(group.find((rate) => rate.embedder === 'offline' && rate.threshold === threshold)),
  )
  const constant = cell(group.find((rate) => rate.embedder === 'constant' && rate.threshold === 0.85))
  console.log(`| ${kind} | ${first.pairs} | ${offline.join(' | ')} | ${constant} |`)
}

function printLookups(figures: LookupFigures): void {
  const { entries, threshold, hit, miss, scan, exact, rounds, bytesPerEntry, longestBlock } = figures
  const withRatio = (times: Times): string =>
    `p50 ${times.p50.toFixed(3)} ms (${(times.p50 / scan.p50).toFixed(3)}), p99 ${times.p99.toFixed(2)} ms (${(times.p99 / scan.p99).toFixed(3)})`
  console.log(`Lookups among ${entries} entries of one scope at ${threshold}; ratio to the plain scan in parentheses`)
  console.log(`  plain scan: p50 ${scan.p50.toFixed(3)} ms, p99 ${scan.p99.toFixed(3)} ms`)
  console.log(`  hit:  ${withRatio(hit)}`)
  console.log(`  miss: ${withRatio(miss)}`)
  console.log(`  results equal to the scan: ${exact} of ${rounds}`)
  console.log(`  memory: ${bytesPerEntry.toFixed(0)} bytes per entry; longest block: ${longestBlock.toFixed(1)} ms`)
}

async function printRequests(): Promise<void> {
  console.log('\nCPU time of the cache for one request (lookup, and storing after a miss)\n')
  console.log('| request | ÷ JSON parse and stringify of its body | µs |\n|---|---|---|')
  for (const { name, ratio, microseconds } of await timeRequests()) {
    console.log(`| ${name} | ${ratio.toFixed(1)} | ${microseconds.toFixed(0)} |`)
  }
}
