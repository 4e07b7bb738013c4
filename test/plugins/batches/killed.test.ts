import { expect, it } from 'vitest'
import { startFarm } from '../../support/farm/farm.ts'
import { waitForBatch, readResults } from '../../support/batches.ts'
import { ITEM_USD, createItems } from './cluster.ts'
import { IS_FULL } from '../../support/full.ts'

const COUNT = IS_FULL ? 500 : 100
const KILLS = [0.16, 0.4, 0.7].map((share) => share * COUNT)

it('produces one result and one charge per item when the worker is killed three times with SIGKILL', async () => {
  const farm = await startFarm()
  try {
    const made = await farm.client.messages.batches.create(createItems(COUNT) as never)
    await farm.replaceWorker()
    for (const calls of KILLS) {
      await farm.waitForUpstreamCalls(calls)
      await farm.replaceWorker()
    }
    await farm.waitForUpstreamCalls(COUNT)
    const batch = await waitForBatch(farm.client, made.id)

    const results = await readResults(farm.client, made.id)
    const usage = await farm.gateway.keys.usage(farm.keyId)
    expect(batch.request_counts).toEqual({ processing: 0, succeeded: COUNT, errored: 0, canceled: 0, expired: 0 })
    expect(results).toHaveLength(COUNT)
    expect(new Set(results.map((one) => one.custom_id)).size).toBe(COUNT)
    expect(usage).toMatchObject({ cost: { billedUsd: Number((COUNT * ITEM_USD).toFixed(6)) } })
  } finally {
    await farm.close()
  }
}, 120_000)
