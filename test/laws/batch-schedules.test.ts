import { describe, expect, it } from 'vitest'
import { crashingStore } from '../plugins/batches/crashing-store.ts'
import {
  callBatches,
  ITEM_USD,
  createItems,
  readResults,
  createCluster,
  completeBatch,
} from '../plugins/batches/cluster.ts'
import { cases, fc } from '../support/properties.ts'

const COUNT = 6

const life = fc.record({
  /** Number of store calls before the process is killed. */
  calls: fc.nat({ max: 90 }),
  concurrency: fc.integer({ min: 1, max: 4 }),
  /** Milliseconds before the next process starts. */
  pauseMs: fc.constantFrom(0, 1_000, 30_000, 61_000),
})

describe('with any processes working on a batch, killed at any time', () => {
  it('every item has one result, and each stored answer is billed once', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(life, { maxLength: 6 }), async (lives) => {
        const cluster = createCluster()
        const first = cluster.startGateway(cluster.store, { batches: { concurrency: 0 } })
        const { value: secret, id: keyId } = await first.keys.create({
          name: 'k',
          budget_limit_cents: 100,
          budget_reset_duration: '1M',
        })
        const { body: made } = await callBatches(first, secret, 'POST', '', createItems(COUNT))

        for (const { calls, concurrency, pauseMs } of lives) {
          const store = crashingStore(cluster.store)
          const mortal = cluster.startGateway(store, { batches: { concurrency } })
          store.crashAfter(calls)
          await mortal.batches.work()
          await mortal.close()
          cluster.now += pauseMs
        }
        await completeBatch(cluster, secret, made.id)

        const { body: batch } = await callBatches(first, secret, 'GET', `/${made.id}`)
        const lines = await readResults(first, secret, made.id)
        const usage = await first.keys.usage(keyId)
        expect(lines.map((line) => line.custom_id).toSorted()).toEqual(
          createItems(COUNT).requests.map((one) => one.custom_id),
        )
        expect(batch.request_counts).toEqual({ processing: 0, succeeded: COUNT, errored: 0, canceled: 0, expired: 0 })
        expect(usage).toMatchObject({ cost: { billedUsd: Number((COUNT * ITEM_USD).toFixed(6)) } })
        expect(await cluster.store.list('batch-todo:', { limit: 10 })).toEqual([])
        expect(await cluster.store.list('batch-request:', { limit: 10 })).toEqual([])
        expect(await cluster.store.list('batch-open:', { limit: 10 })).toEqual([])
      }),
      { numRuns: cases(150) },
    )
  }, 120_000)

  it('a cancelled batch ends, each item is answered once or canceled, and only answers are billed', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(life, { minLength: 1, maxLength: 4 }), fc.nat({ max: 3 }), async (lives, cancelAt) => {
        const cluster = createCluster()
        const first = cluster.startGateway(cluster.store, { batches: { concurrency: 0 } })
        const { value: secret, id: keyId } = await first.keys.create({ name: 'k' })
        const { body: made } = await callBatches(first, secret, 'POST', '', createItems(COUNT))

        for (const [index, { calls, concurrency, pauseMs }] of lives.entries()) {
          const store = crashingStore(cluster.store)
          const mortal = cluster.startGateway(store, { batches: { concurrency } })
          store.crashAfter(calls)
          const working = mortal.batches.work()
          if (index === cancelAt) await callBatches(first, secret, 'POST', `/${made.id}/cancel`)
          await working
          await mortal.close()
          cluster.now += pauseMs
        }
        await completeBatch(cluster, secret, made.id)

        const { body: batch } = await callBatches(first, secret, 'GET', `/${made.id}`)
        const lines = await readResults(first, secret, made.id)
        const { succeeded, canceled, processing } = batch.request_counts
        expect(new Set(lines.map((line) => line.custom_id)).size).toBe(COUNT)
        expect(lines).toHaveLength(COUNT)
        expect({ processing, sum: succeeded + canceled }).toEqual({ processing: 0, sum: COUNT })
        expect(lines.filter((line) => line.result.type === 'succeeded')).toHaveLength(succeeded)
        const usage = await first.keys.usage(keyId)
        expect(usage).toMatchObject({ cost: { billedUsd: Number((succeeded * ITEM_USD).toFixed(6)) } })
      }),
      { numRuns: cases(100) },
    )
  }, 120_000)

  it('concurrent processes call the upstream once per item', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 2, max: 4 }), fc.integer({ min: 1, max: 4 }), async (count, concurrency) => {
        const cluster = createCluster()
        const workers = Array.from({ length: count }, () =>
          cluster.startGateway(cluster.store, { batches: { concurrency } }),
        )
        const idle = cluster.startGateway(cluster.store, { batches: { concurrency: 0 } })
        const { value: secret } = await idle.keys.create({ name: 'k' })
        const { body: made } = await callBatches(idle, secret, 'POST', '', createItems(20))

        await Promise.all(workers.map((worker) => worker.batches.work()))
        await completeBatch(cluster, secret, made.id)

        expect(await readResults(idle, secret, made.id)).toHaveLength(20)
        expect(cluster.calls).toBe(20)
        await Promise.all(workers.map((worker) => worker.batches.work()))
      }),
      { numRuns: cases(20) },
    )
  })
})
