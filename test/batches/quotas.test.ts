import Anthropic from '@anthropic-ai/sdk'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../src/index.ts'
import { call, ITEM_USD, items, linesOf, openRoom, requestOf, said, workToTheEnd, type Room } from './room.ts'

const IDLE = { batches: { concurrency: 0 } }
const FULL = { error: { type: 'invalid_request_error', message: expect.stringContaining('storage quota') } }

/** A room whose store has this capacity for batches, in bytes. */
function smallRoom(bytes: number): Room {
  const room = openRoom()
  return Object.assign(room, { store: memoryStore({ now: () => room.now, owned: { entries: 100_000, bytes } }) })
}

const wide = (count: number, length: number) => ({
  requests: items(count).requests.map(({ custom_id, params }) => ({
    custom_id,
    params: { ...params, metadata: { filling: 'x'.repeat(length) } },
  })),
})

describe('a key that fills the store with batches', () => {
  it('cannot create further batches, while keys, budgets and batches of other keys are created', async () => {
    const room = smallRoom(300_000)
    const gateway = room.process(room.store, IDLE)
    const { value: greedy } = await gateway.keys.create({ name: 'greedy' })
    const answers = []
    for (let n = 0; n < 5; n += 1) answers.push(await call(gateway, greedy, 'POST', '', wide(4, 10_000)))
    const { value: other } = await gateway.keys.create({ name: 'other' })
    await gateway.budgets.create({ name: 'team', max_limit: 100, reset_duration: '1M' })
    const made = await call(gateway, other, 'POST', '', items(3))

    expect(answers[0]?.status).toBe(200)
    expect(answers.at(-1)).toMatchObject({ status: 400, body: FULL })
    expect(made.status).toBe(200)
    await workToTheEnd(room, other, made.body.id)
    expect(await linesOf(room.process(), other, made.body.id)).toHaveLength(3)
  })

  it('stores no part of a rejected batch, and can create batches after it deletes others', async () => {
    const room = smallRoom(300_000)
    const gateway = room.process(room.store, IDLE)
    const { value: secret } = await gateway.keys.create({ name: 'k' })
    const first = await call(gateway, secret, 'POST', '', wide(4, 12_000))
    const keys = await room.store.list('batch', { limit: 1_000 })
    const refused = await call(gateway, secret, 'POST', '', wide(4, 12_000))

    expect(refused).toMatchObject({ status: 400, body: FULL })
    expect(await room.store.list('batch', { limit: 1_000 })).toEqual(keys)
    await call(gateway, secret, 'POST', `/${first.body.id}/cancel`)
    await workToTheEnd(room, secret, first.body.id)
    await call(gateway, secret, 'DELETE', `/${first.body.id}`)
    expect((await call(gateway, secret, 'POST', '', wide(4, 12_000))).status).toBe(200)
  })

  it('receives an error for an answer that exceeds the quota, is billed once, and the batch ends', async () => {
    const room = smallRoom(100_000)
    room.answer = () => said('x'.repeat(15_000))
    const gateway = room.process(room.store, IDLE)
    const { value: secret, id: keyId } = await gateway.keys.create({ name: 'k' })
    const { body } = await call(gateway, secret, 'POST', '', items(3))
    await workToTheEnd(room, secret, body.id)

    const lines = await linesOf(gateway, secret, body.id)
    const errors = lines.filter(({ result }) => result.type === 'errored')
    expect(lines).toHaveLength(3)
    expect(errors.length).toBeGreaterThan(0)
    for (const { result } of errors) expect(result).toMatchObject({ error: FULL })
    expect(room.calls).toBe(3)
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: Number((3 * ITEM_USD).toFixed(6)) } })
  })
})

describe('a batch that is older than a thousand open ones', () => {
  it('is processed first', async () => {
    const room = openRoom()
    const gateway = room.process(room.store, IDLE)
    const { value: patient } = await gateway.keys.create({ name: 'patient' })
    const { value: busy } = await gateway.keys.create({ name: 'busy' })
    const oldest = await call(gateway, patient, 'POST', '', items(1))
    const messages = [{ role: 'user', content: 'Busy?' }]
    for (let n = 0; n < 1_000; n += 1) {
      room.now += 1
      const params = { model: 'up/model', max_tokens: 20, messages }
      await call(gateway, busy, 'POST', '', { requests: [{ custom_id: 'a', params }] })
    }
    let first: string | undefined
    room.answer = (body) => {
      first ??= body
      return body.includes('Busy?')
        ? new Response('{}', { status: 429, headers: { 'retry-after': '60' } })
        : said('Yes.')
    }
    const worker = room.process(room.store, { batches: { concurrency: 1 } })
    await worker.batches.work()

    expect(first).toContain('Item 0?')
    expect((await call(gateway, patient, 'GET', `/${oldest.body.id}`)).body.processing_status).toBe('ended')
  })
})

describe('the event loop', () => {
  /** Returns the number of turns of the event loop during some work. */
  async function turnsOf(work: () => Promise<unknown>): Promise<number> {
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

  it('is not blocked while a batch of 10 MB with 900,000 keys is read and written', async () => {
    const gateway = openRoom().process(undefined, IDLE)
    const { value: secret } = await gateway.keys.create({ name: 'k' })
    const params = Object.fromEntries(Array.from({ length: 88 }, (_, n) => [`a${n}`, n]))
    const requests = Array.from({ length: 10_000 }, (_, n) => ({ custom_id: `${n}`, params }))
    const request = requestOf(secret, 'POST', '', { requests })
    let status = 0

    const turns = await turnsOf(async () => {
      status = (await gateway.fetch(request)).status
    })

    expect(status).toBe(200)
    expect(turns).toBeGreaterThan(200)
  })

  it('is not blocked while items are rejected immediately', async () => {
    const room = openRoom()
    const gateway = room.process(room.store, IDLE)
    const { value: secret } = await gateway.keys.create({ name: 'k' })
    const requests = Array.from({ length: 500 }, (_, n) => ({ custom_id: `${n}`, params: {} }))
    await call(gateway, secret, 'POST', '', { requests })

    expect(await turnsOf(() => room.process().batches.work())).toBeGreaterThan(100)
  })
})

describe('the address of the results', () => {
  it('works in the official client behind a mount that strips the prefix', async () => {
    const room = openRoom()
    const gateway = room.process()
    const { value: apiKey } = await gateway.keys.create({ name: 'k' })
    const client = new Anthropic({
      baseURL: 'https://example.com/tools/ai',
      apiKey,
      maxRetries: 0,
      fetch: async (url, init) => {
        const { pathname, search } = new URL(url instanceof Request ? url.url : url)
        if (!pathname.startsWith('/tools/ai/')) return new Response('{}', { status: 404 })
        return gateway.fetch(new Request(`http://10.0.0.1${pathname.slice('/tools/ai'.length)}${search}`, init))
      },
    })
    const { id } = await client.messages.batches.create(items(2) as never)
    await workToTheEnd(room, apiKey, id, gateway)

    const lines = []
    for await (const line of await client.messages.batches.results(id)) lines.push(line.custom_id)

    expect(lines.toSorted()).toEqual(['item-0', 'item-1'])
  })
})
