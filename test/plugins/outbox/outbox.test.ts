import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  createGateway,
  type Gateway,
  type GatewayOptions,
  memoryStore,
  type Outbox,
  type OutboxRecord,
  type SettledRequest,
} from '../../../src/index.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { ProviderCall } from '../../../src/core/ports.ts'
import { outboxLogs } from '../../../src/governance/outbox.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'

/** Uses 10 prompt tokens at $1 and 1,000 completion tokens at $2 per million: $0.00201 with the margin 1. */
class CostlyProvider extends EchoProvider {
  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(call)
    return { response: { ...response, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: 1000 } }, ignored }
  }
}

const gateways: Gateway[] = []
afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway.close()))
})

interface Received {
  readonly batches: (readonly OutboxRecord[])[]
  readonly requests: () => readonly SettledRequest[]
  readonly logged: Record<string, unknown>[]
}

function setUp(
  outbox: Partial<Outbox> = {},
  options: Partial<GatewayOptions> = {},
): Received & { readonly gateway: Gateway } {
  const batches: (readonly OutboxRecord[])[] = []
  const logged: Record<string, unknown>[] = []
  const gateway = createGateway({
    providers: [new CostlyProvider()],
    margin: 1,
    cache: false,
    runtime: { random: () => 0 },
    log: (record) => void logged.push({ ...record }),
    plugins: [
      {
        name: 'bills',
        outbox: {
          record: (request) => JSON.stringify(request),
          deliver: (records) => void batches.push(records),
          delayMs: 1,
          ...outbox,
        },
      },
    ],
    ...options,
  })
  gateways.push(gateway)
  const requests = (): readonly SettledRequest[] =>
    batches.flat().map(({ value }) => JSON.parse(value) as SettledRequest)
  return { gateway, batches, requests, logged }
}

async function ask(
  { fetch }: Pick<Gateway, 'fetch'>,
  { key, model = 'contract/echo' }: { readonly key?: string; readonly model?: string } = {},
): Promise<string> {
  const response = await fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(key !== undefined && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({ model, max_tokens: 1000, messages: [{ role: 'user', content: 'Hello' }] }),
  })
  await response.text()
  return response.headers.get('x-request-id') ?? ''
}

describe('an outbox', () => {
  it('delivers the id, the caller and the amounts of a settlement', async () => {
    const { gateway, requests } = setUp()
    const tags = { feature: 'chat' }
    const id = await ask(gateway.with({ customer: 'acme', user: 'u_1', session: 's_1', tags }))
    await vi.waitFor(() => expect(requests()).toHaveLength(1))
    expect(requests()).toEqual([
      {
        id,
        at: expect.any(Number),
        day: new Date().toISOString().slice(0, 10),
        keyId: 'application',
        customer: 'acme',
        user: 'u_1',
        session: 's_1',
        tags,
        model: 'contract/echo',
        provider: 'contract',
        status: 200,
        billed: 2_010_000,
        theoretical: 2_010_000,
        actual: 2_010_000,
        tokens: { prompt: 10, completion: 1000, saved: 0 },
        isCacheHit: false,
      },
    ])
  })

  it('delivers the records of each customer in the order of settlement, in bounded batches', async () => {
    const { gateway, batches, requests } = setUp({ maxRecords: 3 })
    const ids = new Map<string, string[]>()
    for (let request = 0; request < 20; request += 1) {
      const customer = `customer-${request % 3}`
      const id = await ask(gateway.with({ customer }))
      ids.set(customer, [...(ids.get(customer) ?? []), id])
    }
    await vi.waitFor(() => expect(requests()).toHaveLength(20))
    expect(Math.max(...batches.map(({ length }) => length))).toBeLessThanOrEqual(3)
    for (const [customer, expected] of ids) {
      const found = requests().filter((request) => request.customer === customer)
      expect(found.map(({ id }) => id)).toEqual(expected)
    }
  })

  it('repeats a batch that fails with the same ids, in smaller batches', async () => {
    let attempts = 0
    const { gateway, batches, logged } = setUp({
      deliver: (records) => {
        batches.push(records)
        attempts += 1
        if (attempts < 3) throw new Error('unavailable')
      },
      delayMs: 50,
    })
    const ids = await Promise.all(Array.from({ length: 4 }, () => ask(gateway.with({ customer: 'acme' }))))
    await vi.waitFor(
      () =>
        expect(
          new Set(
            batches
              .slice(2)
              .flat()
              .map(({ id }) => id),
          ),
        ).toEqual(new Set(ids)),
      5_000,
    )
    expect(batches[0]).toHaveLength(4)
    expect(batches[1]).toEqual(batches[0]?.slice(0, batches[1]?.length))
    expect(logged).toContainEqual(expect.objectContaining({ event: 'a plugin failed', plugin: 'bills' }))
  })

  it('delivers records again with the next process if one is closed during the delivery', async () => {
    const store = memoryStore()
    const begun: string[] = []
    const deliver: Outbox['deliver'] = async (records) => {
      begun.push(...records.map((record) => record.id))
      await new Promise(() => {})
    }
    const first = setUp({ deliver }, { store: { ...store, close: async () => {} } })
    const id = await ask(first.gateway.with({ customer: 'acme' }))
    await vi.waitFor(() => expect(begun).toEqual([id]))
    await first.gateway.close()
    const second = setUp({}, { store })
    await ask(second.gateway)
    await vi.waitFor(() => expect(second.requests().map((request) => request.id)).toEqual([id]), 5_000)
  })

  it('keeps a rejected record as a dead letter, and delivers those behind it', async () => {
    const store = memoryStore()
    const { gateway, requests, batches, logged } = setUp(
      {
        deliver: (records) => {
          const [first] = records
          batches.push(records.slice(1))
          return { rejected: first === undefined ? [] : [{ id: first.id, reason: 'no such customer' }] }
        },
        delayMs: 50,
      },
      { store },
    )
    const bound = gateway.with({ customer: 'acme' })
    const [id = '', ...others] = await inSequence(3, () => ask(bound))
    await vi.waitFor(() => expect(requests().map((request) => request.id)).toEqual(others))
    const letter = await store.get(`outbox-dead:bills:${id}`)
    expect(JSON.parse(letter ?? '')).toMatchObject({ record: { id, billed: 2_010_000 }, reason: 'no such customer' })
    expect(logged).toContainEqual(
      expect.objectContaining({ event: 'a record was given up; it is a dead letter', request_id: id }),
    )
  })

  it('delivers only those records again that were not delivered', async () => {
    const { gateway, batches } = setUp({
      deliver: (records) => {
        batches.push(records)
        return batches.length === 1 ? { retry: [{ id: records[1]?.id ?? '', reason: 'busy' }] } : {}
      },
      delayMs: 50,
    })
    const bound = gateway.with({ customer: 'acme' })
    const ids = await inSequence(3, () => ask(bound))
    await vi.waitFor(() => expect(batches).toHaveLength(2), 5_000)
    expect(batches.map((batch) => batch.map(({ id }) => id))).toEqual([ids, [ids[1]]])
  })

  it('stops a delivery that hangs, and repeats it', async () => {
    const aborted: unknown[] = []
    const { gateway, requests, batches } = setUp({
      timeoutMs: 20,
      deliver: async (records, { signal }) => {
        if (aborted.length > 0) return void batches.push(records)
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        aborted.push(signal.reason)
        await new Promise(() => {})
      },
    })
    await ask(gateway.with({ customer: 'acme' }))
    await vi.waitFor(() => expect(requests()).toHaveLength(1), 5_000)
    expect(String(aborted[0])).toContain('did not return within 20 ms')
  })

  it('settles a request whose record cannot be made, and logs its id and amount', async () => {
    const { gateway, logged } = setUp({
      record: () => {
        throw new Error('broken')
      },
    })
    const { id: keyId, value: key } = await gateway.keys.create({ name: 'app' })
    const id = await ask(gateway, { key })
    expect(await gateway.keys.usage(keyId)).toMatchObject({ requests: 1 })
    expect(logged).toContainEqual(
      expect.objectContaining({
        event: 'a plugin made no record of a settlement',
        request_id: id,
        billed_nano_usd: 2_010_000,
      }),
    )
  })

  it('reports records that were dropped from a full log', async () => {
    const clock = { now: Date.UTC(2026, 10, 28, 10) }
    const store = memoryStore({ now: () => clock.now })
    const keptStore = { ...store, close: async () => {} }
    const runtime = { now: () => clock.now, random: () => 0 }
    const deliver: Outbox['deliver'] = () => {
      throw new Error('unavailable')
    }
    const first = setUp({ deliver, maxStored: 8 }, { store: keptStore, runtime })
    for (let request = 0; request < 5; request += 1) await ask(first.gateway.with({ customer: 'acme' }))
    await first.gateway.close()
    const second = setUp({ maxStored: 8 }, { store, runtime })
    for (const _ of [1, 2, 3]) {
      clock.now += 61_000
      const id = await ask(second.gateway.with({ customer: 'acme' }))
      await vi.waitFor(() => expect(second.requests().at(-1)?.id).toBe(id))
    }
    await vi.waitFor(() =>
      expect(second.logged).toContainEqual(expect.objectContaining({ event: 'records lost', records: 5 })),
    )
  })

  it('costs a gateway without one no entry and no call of the store', async () => {
    const settled: unknown[] = []
    const store = memoryStore()
    const counting = {
      ...store,
      settle: (settlement: Parameters<typeof store.settle>[0]) => {
        settled.push(settlement)
        return store.settle(settlement)
      },
    }
    const gateway = createGateway({ providers: [new CostlyProvider()], store: counting, cache: false })
    gateways.push(gateway)
    await ask(gateway.with({ customer: 'acme' }))
    expect(JSON.stringify(settled)).not.toContain('outbox')
    expect(outboxLogs('bills')).toHaveLength(8)
  })

  it.each([[{}], [{ record: () => undefined }], ['outbox']])('rejects the outbox %j', (outbox) => {
    const options = { providers: [new CostlyProvider()], plugins: [{ name: 'bills', outbox }] } as unknown
    expect(() => createGateway(options as GatewayOptions)).toThrow('outbox')
  })
})

async function inSequence(count: number, work: () => Promise<string>): Promise<readonly string[]> {
  const results: string[] = []
  for (let index = 0; index < count; index += 1) results.push(await work())
  return results
}
