/**
 * npm run bench: the built gateway against its upstream and a bare relay, side by side in one run, interleaved,
 * medians of rounds. Absolute times mean little on a shared machine; the ratios are what is stated.
 */
import { writeFileSync } from 'node:fs'
import { measure, median, startTarget, type Measured, type Target, type Work } from './load.ts'

const rounds = Number(process.env['BENCH_ROUNDS'] ?? 7)
const small = { messages: [{ role: 'user', content: 'What is the capital of France?' }], max_tokens: 100 }
const message = (stream: boolean): string => JSON.stringify({ model: 'bench/bench-model', stream, ...small })
const large = JSON.stringify({
  model: 'bench/bench-model',
  max_tokens: 100,
  messages: Array.from({ length: 200 }, (_, index) => ({
    role: index % 2 === 0 ? 'user' : 'assistant',
    content: `Turn ${index}. ${'The quick brown fox jumps over the lazy dog and counts to ten. '.repeat(64)}`,
  })).concat([{ role: 'user', content: 'And now?' }]),
})

const scenarios: Record<string, Work> = {
  'small JSON': { body: message(false), requests: 3000, concurrency: 32 },
  'stream of 200 events, 64 at once': { body: message(true), requests: 192, concurrency: 64 },
  'first byte, one at a time': { body: message(true), requests: 60, concurrency: 1 },
  [`body of ${Math.round(large.length / 1000)} KB`]: {
    body: large,
    requests: 80,
    concurrency: 4,
    // What is measured is a body that leaves as it came.
    headers: { 'x-savings-level': 'off' },
  },
}

const upstream = await startTarget('upstream', 'upstream')
const relay = await startTarget('relay', 'relay', upstream.url)
const governed = await startTarget('gateway, governed', 'gateway', upstream.url, 'governed')
const open = await startTarget('gateway, no limits', 'gateway', upstream.url, 'open')
const cached = await startTarget('gateway, cache hit', 'gateway', upstream.url, 'cached')
const targets: readonly Target[] = [upstream, relay, governed, open, cached]

const results: Record<string, Record<string, Record<string, number>>> = {}
for (const [scenario, work] of Object.entries(scenarios)) {
  const measured = await interleave(work)
  const of = (target: Target, field: keyof Measured): number => median(measured.get(target)?.map((m) => m[field]) ?? [])
  const rows: Record<string, Record<string, number>> = {}
  for (const target of targets) {
    rows[target.name] = {
      'requests/s': Math.round(of(target, 'perSecond')),
      'rate ÷ relay': round(of(target, 'perSecond') / of(relay, 'perSecond')),
      'CPU µs/request': Math.round(of(target, 'cpu')),
      'CPU ÷ relay': round(of(target, 'cpu') / of(relay, 'cpu')),
      'first byte ms': round(of(target, 'firstByte')),
      'first byte − relay ms': round(of(target, 'firstByte') - of(relay, 'firstByte')),
    }
  }
  results[scenario] = rows
  console.log(`\n${scenario}: ${work.requests} requests a round, ${work.concurrency} at once, ${rounds} rounds`)
  console.table(rows)
}
const perChunk = (of: string): number =>
  ((results['stream of 200 events, 64 at once']?.[of]?.['CPU µs/request'] ?? 0) -
    (results['small JSON']?.[of]?.['CPU µs/request'] ?? 0)) /
  200
console.log(
  `\nCPU a streamed event: gateway ${round(perChunk(governed.name))} µs, relay ${round(perChunk(relay.name))} µs`,
)
const cpu = (name: string): number => results['small JSON']?.[name]?.['CPU µs/request'] ?? 0
console.log(`Governed against no limits, CPU of a small JSON request: ${round(cpu(governed.name) / cpu(open.name))}`)
console.log(`A cache hit against a passthrough, CPU: ${round(cpu(cached.name) / cpu(governed.name))}`)
writeFileSync(new URL('./results.json', import.meta.url), `${JSON.stringify(results, null, 2)}\n`)
for (const target of targets) target.stop()

/** One warm-up, then every target once a round, in turn. */
async function interleave(work: Work): Promise<Map<Target, Measured[]>> {
  const measured = new Map<Target, Measured[]>(targets.map((target) => [target, []]))
  for (let round = -1; round < rounds; round++) {
    for (const target of targets) {
      const result = await measure(target, work)
      if (round >= 0) measured.get(target)?.push(result)
    }
  }
  return measured
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}
