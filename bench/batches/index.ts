/**
 * npm run bench:batches: creates a batch of 10,000 items with the official client. The worker is killed three times with
 * SIGKILL; the store runs in its own process. Prints the results, the times and the peak memory of the worker and the
 * store.
 */
import { startFarm } from '../../test/support/farm/farm.ts'
import { readResults } from '../../test/support/batches.ts'

const count = Number(process.env['BENCH_ITEMS'] ?? 10_000)
const kills = [0.2, 0.45, 0.7].map((share) => Math.round(share * count))
const farm = await startFarm()
const startedAt = performance.now()
const created = await farm.client.messages.batches.create({
  requests: Array.from({ length: count }, (_, n) => ({
    custom_id: `item-${n}`,
    params: { model: 'up/model', max_tokens: 20, messages: [{ role: 'user', content: `Item ${n}?` }] },
  })),
})
const createdAt = performance.now()
await farm.replaceWorker()
for (const times of kills) {
  await farm.waitForUpstreamCalls(times)
  await farm.replaceWorker()
}
await farm.waitForUpstreamCalls(count)
for (let batch = created; batch.processing_status !== 'ended';) {
  await new Promise((resolve) => setTimeout(resolve, 200))
  batch = await farm.client.messages.batches.retrieve(created.id)
}
const endedAt = performance.now()
const { request_counts: counts } = await farm.client.messages.batches.retrieve(created.id)
const results = await readResults(farm.client, created.id)
const readAt = performance.now()
const usage = await farm.gateway.keys.usage(farm.keyId)
const peaks = farm.peaks()

console.table({
  items: count,
  results: results.length,
  'different custom_ids': new Set(results.map((one) => one.custom_id)).size,
  succeeded: counts.succeeded,
  'upstream calls': farm.upstreamCalls(),
  'billed $': usage.cost.billedUsd,
  'expected $': Number((count * 0.0002).toFixed(6)),
  kills: kills.length,
  'create s': seconds(createdAt - startedAt),
  'work s': seconds(endedAt - createdAt),
  'results s': seconds(readAt - endedAt),
  'items/s': Math.round(count / ((endedAt - createdAt) / 1000)),
  'worker peak MiB': peaks.worker,
  'store peak MiB': peaks.store,
})
await farm.close()

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10
}
