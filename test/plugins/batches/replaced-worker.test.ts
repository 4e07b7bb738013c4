import { afterEach, expect, it, vi } from 'vitest'
import { GatewayError } from '../../../src/core/errors.ts'
import type { Store } from '../../../src/core/store.ts'
import { gate } from '../../support/upstream-events.ts'
import { callBatches, chatCompletion, createCluster, createItems, type Cluster } from './cluster.ts'

afterEach(() => void vi.useRealTimers())

/** Returns the id of a new batch of one item. */
async function createBatch(cluster: Cluster): Promise<string> {
  const gateway = cluster.startGateway(cluster.store, { batches: { concurrency: 0 } })
  const { value: secret } = await gateway.keys.create({ name: 'k' })
  return (await callBatches(gateway, secret, 'POST', '', createItems(1))).body.id
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

it('a worker that ended because of a store error is replaced while another worker is busy', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  const cluster = createCluster()
  const id = await createBatch(cluster)
  await createBatch(cluster)
  const hold = gate()
  let failures = 0
  const list: Store['list'] = (prefix, options) => {
    if (!prefix.includes(id) || failures > 0) return cluster.store.list(prefix, options)
    failures += 1
    throw new GatewayError('overloaded', 'The store failed.')
  }
  cluster.response = async () => {
    if (cluster.calls === 1) await hold.opened
    return chatCompletion('Yes.')
  }
  const gateway = cluster.startGateway({ ...cluster.store, list }, { batches: { concurrency: 2 } })
  const working = gateway.batches.work()
  while (cluster.calls === 0 || failures === 0) await nextTurn()
  for (let turns = 0; turns < 20; turns += 1) await nextTurn()
  const callsBeforeDelay = cluster.calls
  await vi.advanceTimersByTimeAsync(6_000)
  for (let turns = 0; turns < 50; turns += 1) await nextTurn()
  const callsAfterDelay = cluster.calls
  hold.open()
  await working

  expect([callsBeforeDelay, callsAfterDelay]).toEqual([1, 2])
})

it('an item is processed once if its answer arrives while the lease is being renewed', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  const cluster = createCluster()
  const id = await createBatch(cluster)
  const [response, reply] = [gate(), gate()]
  let swaps = 0
  const swap: Store['swap'] = async (key, ...others) => {
    const isSwapped = await cluster.store.swap(key, ...others)
    if (key.startsWith('batch-todo:')) swaps += 1
    if (swaps === 2) await reply.opened
    return isSwapped
  }
  cluster.response = async () => {
    await response.opened
    return chatCompletion('Yes.')
  }
  const gateway = cluster.startGateway({ ...cluster.store, swap }, { batches: { concurrency: 1 } })
  const working = gateway.batches.work()
  while (cluster.calls === 0) await nextTurn()
  await vi.advanceTimersByTimeAsync(20_000)
  expect(swaps).toBe(2)
  response.open()
  for (let turns = 0; turns < 20; turns += 1) await nextTurn()
  reply.open()
  await working

  const results = (await cluster.store.list(`batch-result:${id}:`, { limit: 10 })).map((key) => cluster.store.get(key))
  expect((await Promise.all(results)).join()).toContain('Yes.')
})
