import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { mortalStore } from '../batches/mortal-store.ts'
import { call, ITEM_USD, items, linesOf, openRoom, workToTheEnd } from '../batches/room.ts'

const COUNT = 6

const life = fc.record({
  /** Store calls until the process is killed. */
  calls: fc.nat({ max: 90 }),
  concurrency: fc.integer({ min: 1, max: 4 }),
  /** How much time passes before the next process comes. */
  pauseMs: fc.constantFrom(0, 1_000, 30_000, 61_000),
})

describe('with any processes working on a batch, killed at any time', () => {
  it('every item has one result, and each stored answer is billed once', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(life, { maxLength: 6 }), async (lives) => {
        const room = openRoom()
        const first = room.process(room.store, { batches: { concurrency: 0 } })
        const { value: secret, id: keyId } = await first.keys.create({
          name: 'k',
          budget_limit_cents: 100,
          budget_reset_duration: '1M',
        })
        const { body: made } = await call(first, secret, 'POST', '', items(COUNT))

        for (const { calls, concurrency, pauseMs } of lives) {
          const store = mortalStore(room.store)
          const mortal = room.process(store, { batches: { concurrency } })
          store.dieAfter(calls)
          await mortal.batches.work()
          await mortal.close()
          room.now += pauseMs
        }
        await workToTheEnd(room, secret, made.id)

        const { body: batch } = await call(first, secret, 'GET', `/${made.id}`)
        const lines = await linesOf(first, secret, made.id)
        const usage = await first.keys.usage(keyId)
        expect(lines.map((line) => line.custom_id).toSorted()).toEqual(
          items(COUNT).requests.map((one) => one.custom_id),
        )
        expect(batch.request_counts).toEqual({ processing: 0, succeeded: COUNT, errored: 0, canceled: 0, expired: 0 })
        expect(usage).toMatchObject({ cost: { billedUsd: Number((COUNT * ITEM_USD).toFixed(6)) } })
        expect(await room.store.list('batch-todo:', { limit: 10 })).toEqual([])
        expect(await room.store.list('batch-request:', { limit: 10 })).toEqual([])
        expect(await room.store.list('batch-open:', { limit: 10 })).toEqual([])
      }),
      { numRuns: 150 },
    )
  }, 120_000)

  it('a cancelled batch ends, each item is answered once or canceled, and only answers are billed', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(life, { minLength: 1, maxLength: 4 }), fc.nat({ max: 3 }), async (lives, cancelAt) => {
        const room = openRoom()
        const first = room.process(room.store, { batches: { concurrency: 0 } })
        const { value: secret, id: keyId } = await first.keys.create({ name: 'k' })
        const { body: made } = await call(first, secret, 'POST', '', items(COUNT))

        for (const [index, { calls, concurrency, pauseMs }] of lives.entries()) {
          const store = mortalStore(room.store)
          const mortal = room.process(store, { batches: { concurrency } })
          store.dieAfter(calls)
          const working = mortal.batches.work()
          if (index === cancelAt) await call(first, secret, 'POST', `/${made.id}/cancel`)
          await working
          await mortal.close()
          room.now += pauseMs
        }
        await workToTheEnd(room, secret, made.id)

        const { body: batch } = await call(first, secret, 'GET', `/${made.id}`)
        const lines = await linesOf(first, secret, made.id)
        const { succeeded, canceled, processing } = batch.request_counts
        expect(new Set(lines.map((line) => line.custom_id)).size).toBe(COUNT)
        expect(lines).toHaveLength(COUNT)
        expect({ processing, sum: succeeded + canceled }).toEqual({ processing: 0, sum: COUNT })
        expect(lines.filter((line) => line.result.type === 'succeeded')).toHaveLength(succeeded)
        const usage = await first.keys.usage(keyId)
        expect(usage).toMatchObject({ cost: { billedUsd: Number((succeeded * ITEM_USD).toFixed(6)) } })
      }),
      { numRuns: 100 },
    )
  }, 120_000)

  it('concurrent processes call the upstream once per item', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 2, max: 4 }), fc.integer({ min: 1, max: 4 }), async (count, concurrency) => {
        const room = openRoom()
        const workers = Array.from({ length: count }, () => room.process(room.store, { batches: { concurrency } }))
        const idle = room.process(room.store, { batches: { concurrency: 0 } })
        const { value: secret } = await idle.keys.create({ name: 'k' })
        const { body: made } = await call(idle, secret, 'POST', '', items(20))

        await Promise.all(workers.map((worker) => worker.batches.work()))
        await workToTheEnd(room, secret, made.id)

        expect(await linesOf(idle, secret, made.id)).toHaveLength(20)
        expect(room.calls).toBe(20)
        await Promise.all(workers.map((worker) => worker.batches.work()))
      }),
      { numRuns: 20 },
    )
  })
})
