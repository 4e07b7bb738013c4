import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../../src/index.ts'
import {
  callBatches,
  ITEM_USD,
  createItems,
  readResults,
  createCluster,
  createRequest,
  chatCompletion,
  completeBatch,
  type Cluster,
} from './cluster.ts'
import { IS_FULL } from '../../support/full.ts'

const IDLE = { batches: { concurrency: 0 } }
const FULL = { error: { type: 'invalid_request_error', message: expect.stringContaining('storage quota') } }

/** Creates a cluster whose store holds at most this many bytes of batches. */
function createSmallCluster(bytes: number): Cluster {
  const cluster = createCluster()
  return Object.assign(cluster, { store: memoryStore({ now: () => cluster.now, owned: { entries: 100_000, bytes } }) })
}

const createWideItems = (count: number, length: number) => ({
  requests: createItems(count).requests.map(({ custom_id, params }) => ({
    custom_id,
    params: { ...params, metadata: { filling: 'x'.repeat(length) } },
  })),
})

describe('a batch of a key that exceeds its storage quota', () => {
  it('is rejected, and keys, budgets and batches of other keys can still be created', async () => {
    const cluster = createSmallCluster(300_000)
    const gateway = cluster.startGateway(cluster.store, IDLE)
    const { value: greedy } = await gateway.keys.create({ name: 'greedy' })
    const responses = []
    for (let n = 0; n < 5; n += 1)
      responses.push(await callBatches(gateway, greedy, 'POST', '', createWideItems(4, 10_000)))
    const { value: other } = await gateway.keys.create({ name: 'other' })
    await gateway.budgets.create({ name: 'team', max_limit: 100, reset_duration: '1M' })
    const made = await callBatches(gateway, other, 'POST', '', createItems(3))

    expect(responses[0]?.status).toBe(200)
    expect(responses.at(-1)).toMatchObject({ status: 400, body: FULL })
    expect(made.status).toBe(200)
    await completeBatch(cluster, other, made.body.id)
    expect(await readResults(cluster.startGateway(), other, made.body.id)).toHaveLength(3)
  })

  it('is not stored in part, and is accepted after the key deletes another batch', async () => {
    const cluster = createSmallCluster(300_000)
    const gateway = cluster.startGateway(cluster.store, IDLE)
    const { value: secret } = await gateway.keys.create({ name: 'k' })
    const first = await callBatches(gateway, secret, 'POST', '', createWideItems(4, 12_000))
    const keys = await cluster.store.list('batch', { limit: 1_000 })
    const rejected = await callBatches(gateway, secret, 'POST', '', createWideItems(4, 12_000))

    expect(rejected).toMatchObject({ status: 400, body: FULL })
    expect(await cluster.store.list('batch', { limit: 1_000 })).toEqual(keys)
    await callBatches(gateway, secret, 'POST', `/${first.body.id}/cancel`)
    await completeBatch(cluster, secret, first.body.id)
    await callBatches(gateway, secret, 'DELETE', `/${first.body.id}`)
    expect((await callBatches(gateway, secret, 'POST', '', createWideItems(4, 12_000))).status).toBe(200)
  })

  it('ends with an error for each answer that does not fit, and bills each item once', async () => {
    const cluster = createSmallCluster(100_000)
    cluster.response = () => chatCompletion('x'.repeat(15_000))
    const gateway = cluster.startGateway(cluster.store, IDLE)
    const { value: secret, id: keyId } = await gateway.keys.create({ name: 'k' })
    const { body } = await callBatches(gateway, secret, 'POST', '', createItems(3))
    await completeBatch(cluster, secret, body.id)

    const lines = await readResults(gateway, secret, body.id)
    const errors = lines.filter(({ result }) => result.type === 'errored')
    expect(lines).toHaveLength(3)
    expect(errors.length).toBeGreaterThan(0)
    for (const { result } of errors) expect(result).toMatchObject({ error: FULL })
    expect(cluster.calls).toBe(3)
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: Number((3 * ITEM_USD).toFixed(6)) } })
  })
})

describe('the oldest of 1,001 open batches', () => {
  it.runIf(IS_FULL)('is processed first', async () => {
    const cluster = createCluster()
    const gateway = cluster.startGateway(cluster.store, IDLE)
    const { value: patient } = await gateway.keys.create({ name: 'patient' })
    const { value: busy } = await gateway.keys.create({ name: 'busy' })
    const oldest = await callBatches(gateway, patient, 'POST', '', createItems(1))
    const messages = [{ role: 'user', content: 'Busy?' }]
    for (let n = 0; n < 1_000; n += 1) {
      cluster.now += 1
      const params = { model: 'up/model', max_tokens: 20, messages }
      await callBatches(gateway, busy, 'POST', '', { requests: [{ custom_id: 'a', params }] })
    }
    let first: string | undefined
    cluster.response = (body) => {
      first ??= body
      return body.includes('Busy?')
        ? new Response('{}', { status: 429, headers: { 'retry-after': '60' } })
        : chatCompletion('Yes.')
    }
    const worker = cluster.startGateway(cluster.store, { batches: { concurrency: 1 } })
    await worker.batches.work()

    expect(first).toContain('Item 0?')
    expect((await callBatches(gateway, patient, 'GET', `/${oldest.body.id}`)).body.processing_status).toBe('ended')
  })
})

describe('the event loop', () => {
  /** Returns the number of event-loop turns during some work. */
  async function countTurns(work: () => Promise<unknown>): Promise<number> {
    let turns = 0
    let isDone = false
    const turn = (): void => {
      turns += 1
      if (!isDone) setImmediate(turn)
    }
    setImmediate(turn)
    await work()
    isDone = true
    return turns
  }

  it('is not blocked while a 10 MB batch with 900,000 JSON keys is parsed and stored', async () => {
    const gateway = createCluster().startGateway(undefined, IDLE)
    const { value: secret } = await gateway.keys.create({ name: 'k' })
    const params = Object.fromEntries(Array.from({ length: 88 }, (_, n) => [`a${n}`, n]))
    const requests = Array.from({ length: 10_000 }, (_, n) => ({ custom_id: `${n}`, params }))
    const request = createRequest(secret, 'POST', '', { requests })
    let status = 0

    const turns = await countTurns(async () => {
      status = (await gateway.fetch(request)).status
    })

    expect(status).toBe(200)
    expect(turns).toBeGreaterThan(200)
  })

  it('is not blocked while items are rejected immediately', async () => {
    const cluster = createCluster()
    const gateway = cluster.startGateway(cluster.store, IDLE)
    const { value: secret } = await gateway.keys.create({ name: 'k' })
    const requests = Array.from({ length: 500 }, (_, n) => ({ custom_id: `${n}`, params: {} }))
    await callBatches(gateway, secret, 'POST', '', { requests })

    expect(await countTurns(() => cluster.startGateway().batches.work())).toBeGreaterThan(100)
  })
})
