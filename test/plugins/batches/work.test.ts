import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../../src/core/errors.ts'
import type { Store } from '../../../src/core/store.ts'
import type { Provider } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'
import { gate } from '../../support/upstream-events.ts'
import { crashingStore } from './crashing-store.ts'
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

const DAY = 86_400_000

/** Resolves after all pending work that needs no timer. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

interface CreatedBatch {
  readonly secret: string
  readonly keyId: string
  readonly id: string
}

/** Creates a key and a batch that no gateway processes yet. */
async function createBatch(
  cluster: Cluster,
  count: number,
  key: object = {},
  headers: Record<string, string> = {},
): Promise<CreatedBatch> {
  const gateway = cluster.startGateway(cluster.store, { batches: { concurrency: 0 } })
  const { value: secret, id: keyId } = await gateway.keys.create({ name: 'k', ...key })
  const request = createRequest(secret, 'POST', '', createItems(count))
  for (const [name, value] of Object.entries(headers)) request.headers.set(name, value)
  const response = await gateway.fetch(request)
  return { secret, keyId, id: ((await response.json()) as { id: string }).id }
}

describe('items of several keys', () => {
  it('are processed round-robin by key, regardless of the number of batches per key', async () => {
    const cluster = createCluster()
    const greedy = await createBatch(cluster, 2)
    const idle = cluster.startGateway(cluster.store, { batches: { concurrency: 0 } })
    for (let batch = 0; batch < 4; batch++) await callBatches(idle, greedy.secret, 'POST', '', createItems(2))
    const other = await createBatch(cluster, 3)
    const gateway = cluster.startGateway(cluster.store, { batches: { concurrency: 1 } })

    await completeBatch(cluster, other.secret, other.id, gateway)

    const records = (await gateway.audit.read()).records.filter(({ status }) => status === 200)
    const owners = records.map(({ keyId }) => (keyId === other.keyId ? 'other' : 'greedy'))
    expect(owners.lastIndexOf('other')).toBeLessThan(6)
    expect(owners).toHaveLength(13)
  })
})

describe('items of a key whose store call fails once', () => {
  it('are processed before the batches of other keys end', async () => {
    const cluster = createCluster()
    const first = await createBatch(cluster, 2)
    const other = await createBatch(cluster, 12)
    let failures = 0
    const list: Store['list'] = (prefix, options) => {
      if (prefix.includes(first.id)) {
        failures += 1
        if (failures === 1) throw new GatewayError('overloaded', 'The store failed.')
      }
      return cluster.store.list(prefix, options)
    }
    const gateway = cluster.startGateway({ ...cluster.store, list }, { batches: { concurrency: 2 } })
    await gateway.batches.work()

    const records = (await gateway.audit.read()).records.filter(({ status }) => status === 200)
    const owners = records.map(({ keyId }) => (keyId === other.keyId ? 'other' : 'first'))
    expect(failures).toBeGreaterThan(0)
    expect(owners.filter((owner) => owner === 'first')).toHaveLength(2)
    expect(owners.lastIndexOf('first')).toBeLessThan(6)
  })
})

describe('items that cannot be answered yet', () => {
  it('are retried in the next window when a rate limit rejects them', async () => {
    const cluster = createCluster()
    const { secret, id, keyId } = await createBatch(cluster, 7, {
      rate_limit_requests: 4,
      rate_limit_reset_duration: '1m',
    })
    const gateway = cluster.startGateway()

    await gateway.batches.work()
    const respondedInTheFirstMinute = cluster.calls
    const rejectedInTheFirstMinute = (await gateway.audit.read({ keyId })).records.filter((one) => one.status === 429)
    await completeBatch(cluster, secret, id, gateway)

    // Creating the batch is one of the four requests of the first minute.
    expect(respondedInTheFirstMinute).toBe(3)
    expect(rejectedInTheFirstMinute.length).toBeLessThanOrEqual(4)
    expect(cluster.calls).toBe(7)
    expect((await callBatches(gateway, secret, 'GET', `/${id}`)).body.request_counts.succeeded).toBe(7)
  })

  it('fail immediately when they exceed the limit of a full window', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 2, { rate_limit_tokens: 5, token_reset_duration: '1h' })

    await completeBatch(cluster, secret, id)

    const lines = await readResults(cluster.startGateway(), secret, id)
    expect(lines.map((line) => line.result.error?.error.type)).toEqual(['rate_limit_error', 'rate_limit_error'])
    expect(cluster.calls).toBe(0)
  })

  it('wait while the upstream is overloaded, and are billed once', async () => {
    const cluster = createCluster()
    const { secret, id, keyId } = await createBatch(cluster, 2)
    cluster.response = () => new Response('{}', { status: 429, headers: { 'retry-after': '60' } })
    const gateway = cluster.startGateway()
    await gateway.batches.work()
    cluster.response = () => chatCompletion('At last.')

    await completeBatch(cluster, secret, id, gateway)

    expect((await readResults(gateway, secret, id)).map((line) => line.result.type)).toEqual(['succeeded', 'succeeded'])
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: 2 * ITEM_USD } })
  })

  it('expire one day after the batch was created', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 3)
    cluster.now += DAY - 1
    cluster.response = () => new Response('{}', { status: 429, headers: { 'retry-after': '60' } })
    const gateway = cluster.startGateway()
    await gateway.batches.work()
    cluster.now += 1

    await completeBatch(cluster, secret, id, gateway)

    const { body } = await callBatches(gateway, secret, 'GET', `/${id}`)
    expect(body.request_counts).toEqual({ processing: 0, succeeded: 0, errored: 0, canceled: 0, expired: 3 })
    expect(Date.parse(body.ended_at ?? '')).toBeGreaterThanOrEqual(Date.parse(body.expires_at))
  })
})

describe('an item whose vendor is answering when the gateway closes', () => {
  it('is not billed, because another gateway processes it again', async () => {
    const cluster = createCluster()
    const { secret, id, keyId } = await createBatch(cluster, 1)
    const accepted = gate()
    const hanging: Provider = {
      ...extractive(),
      name: 'up',
      model: (name) => extractive().model(name === 'model' ? 'extractive' : name),
      complete: ({ onAccepted, signal }) =>
        new Promise((_, reject) => {
          onAccepted?.()
          signal.addEventListener('abort', () => reject(new Error('The gateway is closing.')))
          accepted.open()
        }),
    }
    const store: Store = { ...cluster.store, close: async () => {} }
    const closed = cluster.startGateway(store, { providers: [hanging] })
    const working = closed.batches.work()
    await accepted.opened
    await closed.close()
    await working
    const gateway = cluster.startGateway(store)
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: 0 } })

    await completeBatch(cluster, secret, id, gateway)

    expect((await readResults(gateway, secret, id)).map((line) => line.result.type)).toEqual(['succeeded'])
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: ITEM_USD } })
  })
})

describe("with onStoreFailure: 'allow'", () => {
  it('an item waits until the store can reserve its cost, and is billed once', async () => {
    const cluster = createCluster()
    const { secret, id, keyId } = await createBatch(cluster, 1, { budget_limit_cents: 1 })
    let isFailing = true
    const reserve: Store['reserve'] = async (request) => {
      if (isFailing) throw new GatewayError('overloaded', 'The store failed.')
      return cluster.store.reserve(request)
    }
    const gateway = cluster.startGateway({ ...cluster.store, reserve, local: false }, { onStoreFailure: 'allow' })
    await gateway.batches.work()
    expect(cluster.calls).toBe(0)

    isFailing = false
    await completeBatch(cluster, secret, id, gateway)

    expect(cluster.calls).toBe(1)
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: ITEM_USD } })
  })
})

describe('a gateway that lost its lease', () => {
  it('discards and does not bill its result, and the result of the new owner remains', async () => {
    const cluster = createCluster()
    const { secret, id, keyId } = await createBatch(cluster, 1)
    const slow = gate()
    cluster.response = async () => {
      await slow.opened
      return chatCompletion('Too late.')
    }
    const paused = cluster.startGateway().batches.work()
    while (cluster.calls === 0) await nextTurn()
    cluster.now += 61_000
    cluster.response = () => chatCompletion('In time.')
    const gateway = cluster.startGateway()
    await completeBatch(cluster, secret, id, gateway)
    slow.open()
    await paused

    expect(JSON.stringify(await readResults(gateway, secret, id))).toContain('In time.')
    // The vendor charges for both answers. The discarded one costs the operator only.
    expect(await gateway.keys.usage(keyId)).toMatchObject({
      cost: { billedUsd: ITEM_USD, actualUsd: 2 * ITEM_USD },
    })
    expect((await gateway.audit.read({ keyId })).records).toHaveLength(1)
  })
})

describe('closing a gateway', () => {
  it('releases its items, so that another gateway continues immediately', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 2)
    cluster.response = () => new Promise(() => {})
    const closing = cluster.startGateway({ ...cluster.store, close: async () => {} })
    const working = closing.batches.work()
    while (cluster.calls < 2) await nextTurn()
    await closing.close()
    await working
    cluster.response = () => chatCompletion('Yes.')
    const next = cluster.startGateway()
    await next.batches.work()

    expect((await callBatches(next, secret, 'GET', `/${id}`)).body.request_counts.succeeded).toBe(2)
  })

  it('sends no request for an item that it has claimed but not yet read', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 1)
    const reading = gate()
    const resumed = gate()
    const get: Store['get'] = async (name) => {
      if (name.startsWith('batch-request:')) {
        reading.open()
        await resumed.opened
      }
      return cluster.store.get(name)
    }
    const closing = cluster.startGateway({ ...cluster.store, get, close: async () => {} })
    const working = closing.batches.work()
    await reading.opened
    const closed = closing.close()
    await nextTurn()
    resumed.open()
    await Promise.all([closed, working])
    const callsWhileClosing = cluster.calls
    const next = cluster.startGateway()
    await next.batches.work()

    expect(callsWhileClosing).toBe(0)
    expect((await callBatches(next, secret, 'GET', `/${id}`)).body.request_counts.succeeded).toBe(1)
  })
})

describe('the data of a batch', () => {
  it('loses its results after 29 days and is deleted after 90', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 2)
    await completeBatch(cluster, secret, id)
    const createdAt = cluster.now
    const readAfter = async (days: number) => {
      cluster.now = createdAt + days * DAY
      // The first cleanup runs after an hour and schedules the next.
      for (let runs = 0; runs < 3; runs += 1) await cluster.startGateway().batches.work()
      return callBatches(cluster.startGateway(cluster.store, { batches: { concurrency: 0 } }), secret, 'GET', `/${id}`)
    }

    const before = await readAfter(28)
    const after = await readAfter(29.1)
    const results = await callBatches(cluster.startGateway(), secret, 'GET', `/${id}/results`)
    const deleted = await readAfter(90.1)

    expect(before.body).toMatchObject({ archived_at: null, results_url: expect.stringContaining(id) })
    expect(after.body).toMatchObject({ archived_at: expect.any(String), results_url: null })
    expect(results.status).toBe(404)
    expect(deleted.status).toBe(404)
    expect(await cluster.store.list('batch', { limit: 10 })).toEqual([])
  })

  it.each([3, 10, 25, 44])(
    'is removed if the process crashed after %i store calls while it stored the batch',
    async (calls) => {
      const cluster = createCluster()
      const store = crashingStore(cluster.store)
      const crashing = cluster.startGateway(store, { batches: { concurrency: 0 } })
      const { value: secret } = await crashing.keys.create({ name: 'k' })
      await crashing.keys.list()
      await callBatches(crashing, secret, 'GET')
      store.crashAfter(calls)
      const response = await callBatches(crashing, secret, 'POST', '', createItems(20))
      const shown = await callBatches(cluster.startGateway(), secret, 'GET')
      cluster.now += 2 * 3_600_000
      await cluster.startGateway().batches.work()

      expect(response.status).toBe(503)
      expect(shown.body).toMatchObject({ data: [] })
      expect(await cluster.store.list('batch', { limit: 10 })).toEqual([])
    },
  )

  it('is removed with all items when an ended batch is deleted', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 150)
    const gateway = cluster.startGateway()
    await completeBatch(cluster, secret, id, gateway)
    await callBatches(gateway, secret, 'DELETE', `/${id}`)

    const remaining = await cluster.store.list('batch', { limit: 10 })
    expect(remaining.map((key) => key.split(':')[0])).toEqual(['batch-due'])
  })
})

describe('results', () => {
  it('take one line each, even if the upstream JSON has line breaks', async () => {
    const cluster = createCluster()
    cluster.response = () => chatCompletion('Two\nlines.', (value) => JSON.stringify(value, undefined, 2))
    const { secret, id } = await createBatch(cluster, 3)
    await completeBatch(cluster, secret, id)

    expect(await readResults(cluster.startGateway(), secret, id)).toHaveLength(3)
  })

  it('are read on demand, not all at once', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 500)
    await completeBatch(cluster, secret, id)
    let read = 0
    const gateway = cluster.startGateway({
      ...cluster.store,
      get: (key) => {
        read += key.startsWith('batch-result:') ? 1 : 0
        return cluster.store.get(key)
      },
    })

    const response = await gateway.fetch(createRequest(secret, 'GET', `/${id}/results`))
    const reader = response.body?.getReader()
    await reader?.read()
    const readAtFirst = read
    for (;;) if ((await reader?.read())?.done !== false) break

    expect(response.headers.get('content-type')).toBe('application/x-jsonl')
    expect(readAtFirst).toBeLessThan(100)
    expect(read).toBe(500)
  })
})

describe('a gateway that processes batches', () => {
  it('limits the number of concurrent items', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 30)
    let active = 0
    let peak = 0
    cluster.response = async () => {
      active += 1
      peak = Math.max(peak, active)
      await nextTurn()
      active -= 1
      return chatCompletion('Yes.')
    }

    await completeBatch(cluster, secret, id, cluster.startGateway(cluster.store, { batches: { concurrency: 3 } }))

    expect(peak).toBe(3)
  })

  it('applies the steering headers of the batch to each item', async () => {
    const cluster = createCluster()
    const { secret, id } = await createBatch(cluster, 2, {}, { 'x-savings-level': 'off', 'x-unknown': 'no' })
    const head = await cluster.store.list('batch-head:', { limit: 1 })

    const stored = await cluster.store.get(head[0] ?? '')
    await completeBatch(cluster, secret, id)

    expect(stored).toContain('"headers":{"x-savings-level":"off"}')
  })

  it('keeps a serverless host awake until the batch has ended', async () => {
    const cluster = createCluster()
    const awake: Promise<unknown>[] = []
    const gateway = cluster.startGateway(cluster.store, {
      batches: { waitUntil: (promise) => void awake.push(promise) },
    })
    const { value: secret } = await gateway.keys.create({ name: 'k' })

    const { body } = await callBatches(gateway, secret, 'POST', '', createItems(5))
    await Promise.all(awake)

    expect((await callBatches(gateway, secret, 'GET', `/${body.id}`)).body.processing_status).toBe('ended')
  })

  it('delays items while many interactive requests wait for their answers', async () => {
    const cluster = createCluster()
    const hold = gate()
    const calls: string[] = []
    cluster.response = async (body) => {
      calls.push(body.includes('Item') ? 'item' : 'interactive')
      if (!body.includes('Item')) await hold.opened
      return chatCompletion('Yes.')
    }
    const gateway = cluster.startGateway()
    const { value: other } = await gateway.keys.create({ name: 'interactive' })
    const chat = { model: 'up/model', max_tokens: 20, messages: [{ role: 'user', content: 'Hello?' }] }
    const interactive = Array.from({ length: 12 }, () => {
      const headers = { 'x-api-key': other, 'content-type': 'application/json' }
      const body = JSON.stringify(chat)
      return gateway.fetch(new Request('https://gateway.example/v1/messages', { method: 'POST', headers, body }))
    })
    while (calls.length < 12) await nextTurn()
    const { secret, id } = await createBatch(cluster, 3)
    const working = gateway.batches.work()
    for (let turns = 0; turns < 50; turns += 1) await nextTurn()
    const itemsWhileBusy = calls.filter((kind) => kind === 'item').length
    hold.open()
    await Promise.all(interactive)
    await working
    await completeBatch(cluster, secret, id, gateway)

    expect(itemsWhileBusy).toBe(0)
    expect(calls.filter((kind) => kind === 'item')).toHaveLength(3)
  })
})
