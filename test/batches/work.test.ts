import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import { gate } from '../support/upstream-frames.ts'
import { mortalStore } from './mortal-store.ts'
import { call, ITEM_USD, items, linesOf, openRoom, requestOf, said, workToTheEnd, type Room } from './room.ts'

const DAY = 86_400_000

/** Resolves after all work that needs no timer. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

interface Made {
  readonly secret: string
  readonly keyId: string
  readonly id: string
}

/** Creates a batch of a new key, on which no process works yet. */
async function made(room: Room, count: number, key: object = {}, headers: Record<string, string> = {}): Promise<Made> {
  const gateway = room.process(room.store, { batches: { concurrency: 0 } })
  const { value: secret, id: keyId } = await gateway.keys.create({ name: 'k', ...key })
  const request = requestOf(secret, 'POST', '', items(count))
  for (const [name, value] of Object.entries(headers)) request.headers.set(name, value)
  const response = await gateway.fetch(request)
  return { secret, keyId, id: ((await response.json()) as { id: string }).id }
}

describe('items of several keys', () => {
  it('are taken in turn by key, however many batches a key has', async () => {
    const room = openRoom()
    const greedy = await made(room, 2)
    const idle = room.process(room.store, { batches: { concurrency: 0 } })
    for (let batch = 0; batch < 4; batch++) await call(idle, greedy.secret, 'POST', '', items(2))
    const other = await made(room, 3)
    const gateway = room.process(room.store, { batches: { concurrency: 1 } })

    await workToTheEnd(room, other.secret, other.id, gateway)

    const records = (await gateway.audit.read()).records.filter(({ status }) => status === 200)
    const owners = records.map(({ keyId }) => (keyId === other.keyId ? 'other' : 'greedy'))
    expect(owners.lastIndexOf('other')).toBeLessThan(6)
    expect(owners).toHaveLength(13)
  })
})

describe('items of a key whose store call fails once', () => {
  it('are processed before the batches of other keys end', async () => {
    const room = openRoom()
    const first = await made(room, 2)
    const other = await made(room, 12)
    let failures = 0
    const list: Store['list'] = (prefix, options) => {
      if (prefix.includes(first.id)) {
        failures += 1
        if (failures === 1) throw new GatewayError('overloaded', 'The store failed.')
      }
      return room.store.list(prefix, options)
    }
    const gateway = room.process({ ...room.store, list }, { batches: { concurrency: 2 } })
    await gateway.batches.work()

    const records = (await gateway.audit.read()).records.filter(({ status }) => status === 200)
    const owners = records.map(({ keyId }) => (keyId === other.keyId ? 'other' : 'first'))
    expect(failures).toBeGreaterThan(0)
    expect(owners.filter((owner) => owner === 'first')).toHaveLength(2)
    expect(owners.lastIndexOf('first')).toBeLessThan(6)
  })
})

describe('items that cannot be answered now', () => {
  it('wait while a limit rejects them, and are retried afterwards', async () => {
    const room = openRoom()
    const { secret, id, keyId } = await made(room, 7, { rate_limit_requests: 4, rate_limit_reset_duration: '1m' })
    const gateway = room.process()

    await gateway.batches.work()
    const answeredInTheFirstMinute = room.calls
    const refusedInTheFirstMinute = (await gateway.audit.read({ keyId })).records.filter((one) => one.status === 429)
    await workToTheEnd(room, secret, id, gateway)

    // The creation of the batch is one of the four requests of the first minute.
    expect(answeredInTheFirstMinute).toBe(3)
    expect(refusedInTheFirstMinute.length).toBeLessThanOrEqual(4)
    expect(room.calls).toBe(7)
    expect((await call(gateway, secret, 'GET', `/${id}`)).body.request_counts.succeeded).toBe(7)
  })

  it('fail immediately when they exceed the limit of a whole window, without delaying others', async () => {
    const room = openRoom()
    const { secret, id } = await made(room, 2, { rate_limit_tokens: 5, token_reset_duration: '1h' })

    await workToTheEnd(room, secret, id)

    const lines = await linesOf(room.process(), secret, id)
    expect(lines.map((line) => line.result.error?.error.type)).toEqual(['rate_limit_error', 'rate_limit_error'])
    expect(room.calls).toBe(0)
  })

  it('wait while the upstream is overloaded, and are billed for their one answer', async () => {
    const room = openRoom()
    const { secret, id, keyId } = await made(room, 2)
    room.answer = () => new Response('{}', { status: 429, headers: { 'retry-after': '60' } })
    const gateway = room.process()
    await gateway.batches.work()
    room.answer = () => said('At last.')

    await workToTheEnd(room, secret, id, gateway)

    expect((await linesOf(gateway, secret, id)).map((line) => line.result.type)).toEqual(['succeeded', 'succeeded'])
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: 2 * ITEM_USD } })
  })

  it('expire a day after the creation of their batch', async () => {
    const room = openRoom()
    const { secret, id } = await made(room, 3)
    room.now += DAY - 1
    room.answer = () => new Response('{}', { status: 429, headers: { 'retry-after': '60' } })
    const gateway = room.process()
    await gateway.batches.work()
    room.now += 1

    await workToTheEnd(room, secret, id, gateway)

    const { body } = await call(gateway, secret, 'GET', `/${id}`)
    expect(body.request_counts).toEqual({ processing: 0, succeeded: 0, errored: 0, canceled: 0, expired: 3 })
    expect(Date.parse(body.ended_at ?? '')).toBeGreaterThanOrEqual(Date.parse(body.expires_at))
  })
})

describe('a process that lost its lease', () => {
  it('neither counts nor bills its result, and the result of the new owner remains', async () => {
    const room = openRoom()
    const { secret, id, keyId } = await made(room, 1)
    const slow = gate()
    room.answer = async () => {
      await slow.opened
      return said('Too late.')
    }
    const paused = room.process().batches.work()
    while (room.calls === 0) await turn()
    room.now += 61_000
    room.answer = () => said('In time.')
    const gateway = room.process()
    await workToTheEnd(room, secret, id, gateway)
    slow.open()
    await paused

    expect(JSON.stringify(await linesOf(gateway, secret, id))).toContain('In time.')
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: ITEM_USD } })
    expect((await gateway.audit.read({ keyId })).records).toHaveLength(1)
  })
})

describe('a gateway that is closed', () => {
  it('releases its items, so that another process continues immediately', async () => {
    const room = openRoom()
    const { secret, id } = await made(room, 2)
    room.answer = () => new Promise(() => {})
    const closing = room.process({ ...room.store, close: async () => {} })
    const working = closing.batches.work()
    while (room.calls < 2) await turn()
    await closing.close()
    await working
    room.answer = () => said('Yes.')
    const next = room.process()
    await next.batches.work()

    expect((await call(next, secret, 'GET', `/${id}`)).body.request_counts.succeeded).toBe(2)
  })
})

describe('the data of a batch', () => {
  it('loses its results after 29 days and is deleted after 90', async () => {
    const room = openRoom()
    const { secret, id } = await made(room, 2)
    await workToTheEnd(room, secret, id)
    const createdAt = room.now
    const later = async (days: number) => {
      room.now = createdAt + days * DAY
      // The first cleanup runs after an hour and schedules the next.
      for (let looks = 0; looks < 3; looks += 1) await room.process().batches.work()
      return call(room.process(room.store, { batches: { concurrency: 0 } }), secret, 'GET', `/${id}`)
    }

    const before = await later(28)
    const after = await later(29.1)
    const results = await call(room.process(), secret, 'GET', `/${id}/results`)
    const gone = await later(90.1)

    expect(before.body).toMatchObject({ archived_at: null, results_url: expect.stringContaining(id) })
    expect(after.body).toMatchObject({ archived_at: expect.any(String), results_url: null })
    expect(results.status).toBe(404)
    expect(gone.status).toBe(404)
    expect(await room.store.list('batch', { limit: 10 })).toEqual([])
  })

  it.each([3, 10, 25, 44])(
    'nothing stays of one whose process died while it was written, after %i store calls',
    async (calls) => {
      const room = openRoom()
      const store = mortalStore(room.store)
      const dying = room.process(store, { batches: { concurrency: 0 } })
      const { value: secret } = await dying.keys.create({ name: 'k' })
      await dying.keys.list()
      await call(dying, secret, 'GET')
      store.dieAfter(calls)
      const answer = await call(dying, secret, 'POST', '', items(20))
      const shown = await call(room.process(), secret, 'GET')
      room.now += 2 * 3_600_000
      await room.process().batches.work()

      expect(answer.status).toBe(503)
      expect(shown.body).toMatchObject({ data: [] })
      expect(await room.store.list('batch', { limit: 10 })).toEqual([])
    },
  )

  it('is removed with all items when an ended batch is deleted', async () => {
    const room = openRoom()
    const { secret, id } = await made(room, 150)
    const gateway = room.process()
    await workToTheEnd(room, secret, id, gateway)
    await call(gateway, secret, 'DELETE', `/${id}`)

    const left = await room.store.list('batch', { limit: 10 })
    expect(left.map((key) => key.split(':')[0])).toEqual(['batch-due'])
  })
})

describe('results', () => {
  it('are one line each, even if the JSON of the upstream has line breaks', async () => {
    const room = openRoom()
    room.answer = () => said('Two\nlines.', (value) => JSON.stringify(value, undefined, 2))
    const { secret, id } = await made(room, 3)
    await workToTheEnd(room, secret, id)

    expect(await linesOf(room.process(), secret, id)).toHaveLength(3)
  })

  it('are read on demand, never all at once', async () => {
    const room = openRoom()
    const { secret, id } = await made(room, 500)
    await workToTheEnd(room, secret, id)
    let read = 0
    const gateway = room.process({
      ...room.store,
      get: (key) => {
        read += key.startsWith('batch-result:') ? 1 : 0
        return room.store.get(key)
      },
    })

    const response = await gateway.fetch(requestOf(secret, 'GET', `/${id}/results`))
    const reader = response.body?.getReader()
    await reader?.read()
    const readAtFirst = read
    for (;;) if ((await reader?.read())?.done !== false) break

    expect(response.headers.get('content-type')).toBe('application/x-jsonl')
    expect(readAtFirst).toBeLessThan(100)
    expect(read).toBe(500)
  })
})

describe('a process that works on batches', () => {
  it('limits the number of concurrent items', async () => {
    const room = openRoom()
    const { secret, id } = await made(room, 30)
    let under = 0
    let most = 0
    room.answer = async () => {
      under += 1
      most = Math.max(most, under)
      await turn()
      under -= 1
      return said('Yes.')
    }

    await workToTheEnd(room, secret, id, room.process(room.store, { batches: { concurrency: 3 } }))

    expect(most).toBe(3)
  })

  it('applies the steering headers of the batch to each item', async () => {
    const room = openRoom()
    const { secret, id } = await made(room, 2, {}, { 'x-savings-level': 'off', 'x-unknown': 'no' })
    const head = await room.store.list('batch-head:', { limit: 1 })

    const stored = await room.store.get(head[0] ?? '')
    await workToTheEnd(room, secret, id)

    expect(stored).toContain('"headers":{"x-savings-level":"off"}')
  })

  it('keeps a serverless host awake until the batch has ended', async () => {
    const room = openRoom()
    const awake: Promise<unknown>[] = []
    const gateway = room.process(room.store, { batches: { waitUntil: (promise) => void awake.push(promise) } })
    const { value: secret } = await gateway.keys.create({ name: 'k' })

    const { body } = await call(gateway, secret, 'POST', '', items(5))
    await Promise.all(awake)

    expect((await call(gateway, secret, 'GET', `/${body.id}`)).body.processing_status).toBe('ended')
  })

  it('delays items while many interactive requests wait for their answers', async () => {
    const room = openRoom()
    const hold = gate()
    const asked: string[] = []
    room.answer = async (body) => {
      asked.push(body.includes('Item') ? 'item' : 'interactive')
      if (!body.includes('Item')) await hold.opened
      return said('Yes.')
    }
    const gateway = room.process()
    const { value: other } = await gateway.keys.create({ name: 'interactive' })
    const chat = { model: 'up/model', max_tokens: 20, messages: [{ role: 'user', content: 'Hello?' }] }
    const interactive = Array.from({ length: 12 }, () => {
      const headers = { 'x-api-key': other, 'content-type': 'application/json' }
      const body = JSON.stringify(chat)
      return gateway.fetch(new Request('https://gateway.example/v1/messages', { method: 'POST', headers, body }))
    })
    while (asked.length < 12) await turn()
    const { secret, id } = await made(room, 3)
    const working = gateway.batches.work()
    for (let turns = 0; turns < 50; turns += 1) await turn()
    const askedWhileBusy = asked.filter((kind) => kind === 'item').length
    hold.open()
    await Promise.all(interactive)
    await working
    await workToTheEnd(room, secret, id, gateway)

    expect(askedWhileBusy).toBe(0)
    expect(asked.filter((kind) => kind === 'item')).toHaveLength(3)
  })
})
