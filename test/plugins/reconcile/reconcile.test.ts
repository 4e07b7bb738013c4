import { afterEach, describe, expect, it, vi } from 'vitest'
import { createGateway, type Gateway, memoryStore, type Outbox, type ReconcileQuery } from '../../../src/index.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { ProviderCall } from '../../../src/core/ports.ts'
import { outboxLogs } from '../../../src/governance/outbox.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'

/** Uses 10 prompt tokens at $1 and 1,000 completion tokens at $2 per million: $0.00201. */
class CostlyProvider extends EchoProvider {
  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(call)
    return { response: { ...response, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: 1000 } }, ignored }
  }
}

const NOW = Date.UTC(2026, 10, 28, 12)
const DAY = '2026-11-28'
const BILLED = 2_010_000
const PERIOD = { from: DAY, to: DAY } as const

const gateways: Gateway[] = []
afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway.close()))
})

function setUp(deliver: Outbox['deliver'] | undefined) {
  const store = memoryStore({ now: () => NOW })
  const gateway = createGateway({
    providers: [new CostlyProvider()],
    store,
    margin: 1,
    cache: false,
    log: () => {},
    runtime: { now: () => NOW, random: () => 0 },
    ...(deliver !== undefined && {
      plugins: [{ name: 'bills', outbox: { record: ({ id }) => id, deliver, delayMs: 1 } }],
    }),
  })
  gateways.push(gateway)
  const reconcile = (query: Partial<ReconcileQuery> = {}) => gateway.usage.reconcile({ ...PERIOD, ...query })
  return { gateway, store, reconcile }
}

async function ask({ fetch }: Pick<Gateway, 'fetch'>): Promise<string> {
  const response = await fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'contract/echo', max_tokens: 1000, messages: [{ role: 'user', content: 'Hi' }] }),
  })
  await response.text()
  return response.headers.get('x-request-id') ?? ''
}

describe('usage.reconcile', () => {
  it('finds the ledger, the audit trail and the delivered events equal', async () => {
    const { gateway, reconcile } = setUp(() => {})
    for (const customer of ['acme', 'umbrella', 'acme']) await ask(gateway.with({ customer }))
    await vi.waitFor(async () => expect((await reconcile()).differences).toEqual([]))
    expect(await reconcile()).toEqual({
      ...PERIOD,
      isEqual: true,
      days: [
        {
          day: DAY,
          ledgerNanoUsd: 3 * BILLED,
          auditNanoUsd: 3 * BILLED,
          outboxes: { bills: { deliveredNanoUsd: 3 * BILLED, waitingNanoUsd: 0, deadNanoUsd: 0 } },
        },
      ],
      differences: [],
      omitted: 0,
      vendor: [],
    })
  })

  it('lists events that wait, and dead letters with their reasons', async () => {
    const { gateway, reconcile } = setUp((records) => {
      const [{ id } = { id: '' }] = records
      return {
        rejected: [{ id, reason: 'no such customer' }],
        retry: records.slice(1).map((record) => ({ id: record.id, reason: 'busy' })),
      }
    })
    const bound = gateway.with({ customer: 'acme' })
    const id = await ask(bound)
    await vi.waitFor(async () => expect((await reconcile()).days[0]?.outboxes['bills']?.deadNanoUsd).toBe(BILLED))
    expect(await reconcile()).toMatchObject({
      isEqual: false,
      differences: [
        {
          kind: 'dead-letter',
          outbox: 'bills',
          day: DAY,
          id,
          customer: 'acme',
          nanoUsd: BILLED,
          reason: 'no such customer',
        },
      ],
    })
  })

  it('lists requests that only the audit trail or only the events have', async () => {
    const { gateway, store, reconcile } = setUp(() => {})
    const id = await ask(gateway.with({ customer: 'acme' }))
    await vi.waitFor(async () => expect((await reconcile()).isEqual).toBe(true))
    const record = { request_id: 'req_unknown', key_id: 'k', cost_usd: 0.5, timestamp: new Date(NOW).toISOString() }
    await store.append('audit', { at: NOW, value: JSON.stringify(record) })
    const stored = { id: 'req_extra', keyId: 'k', day: NOW / 86_400_000 - 0.5, billed: 7, value: '' }
    await store.append(outboxLogs('bills')[0] ?? '', { at: NOW, value: JSON.stringify(stored) })
    const { differences } = await reconcile()
    expect(differences).toContainEqual(
      expect.objectContaining({ kind: 'not-in-events', id: 'req_unknown', nanoUsd: 500_000_000 }),
    )
    expect(differences).toContainEqual(expect.objectContaining({ kind: 'not-in-audit', id: 'req_extra', nanoUsd: 7 }))
    expect(differences.map((difference) => difference.id)).not.toContain(id)
  })

  it('lists a day whose events do not add up to the ledger', async () => {
    const store = memoryStore({ now: () => NOW })
    const options = {
      providers: [new CostlyProvider()],
      store,
      margin: 1,
      cache: false,
      runtime: { now: () => NOW },
    } as const
    const before = createGateway({ ...options, store: { ...store, close: async () => {} } })
    await ask(before.with({ customer: 'acme' }))
    await before.close()
    const after = createGateway({
      ...options,
      plugins: [{ name: 'bills', outbox: { record: ({ id }) => id, deliver: () => {}, delayMs: 1 } }],
    })
    gateways.push(after)
    const { differences } = await after.usage.reconcile(PERIOD)
    expect(differences).toContainEqual({ kind: 'ledger', outbox: 'bills', day: DAY, nanoUsd: BILLED })
  })

  it('compares the audit trail with the ledger without an outbox', async () => {
    const { gateway, reconcile, store } = setUp(undefined)
    await ask(gateway.with({ customer: 'acme' }))
    expect(await reconcile()).toMatchObject({ isEqual: true, days: [{ ledgerNanoUsd: BILLED, auditNanoUsd: BILLED }] })
    const record = { request_id: 'req_unknown', key_id: 'k', cost_usd: 0.5, timestamp: new Date(NOW).toISOString() }
    await store.append('audit', { at: NOW, value: JSON.stringify(record) })
    expect((await reconcile()).differences).toEqual([{ kind: 'audit', nanoUsd: -500_000_000 }])
  })

  it("sets a vendor's usage export beside the ledger, by day and model", async () => {
    const { gateway, reconcile } = setUp(undefined)
    await ask(gateway.with({ customer: 'acme' }))
    const { vendor } = await reconcile({
      vendor: [
        { day: DAY, model: 'echo', costUsd: 0.002, promptTokens: 10, completionTokens: 900 },
        { day: DAY, model: 'echo', costUsd: 0.00001, completionTokens: 100 },
        { day: DAY, model: 'other', costUsd: 1 },
      ],
    })
    expect(vendor).toEqual([
      {
        day: DAY,
        model: 'echo',
        ledgerNanoUsd: BILLED,
        vendorNanoUsd: BILLED,
        ledgerTokens: { prompt: 10, completion: 1000 },
        vendorTokens: { prompt: 10, completion: 1000 },
      },
      {
        day: DAY,
        model: 'other',
        ledgerNanoUsd: 0,
        vendorNanoUsd: 1_000_000_000,
        ledgerTokens: { prompt: 0, completion: 0 },
        vendorTokens: { prompt: 0, completion: 0 },
      },
    ])
  })

  it.each([[{ from: '2026-11-31' }], [{ from: '2026-11-29' }], [{ from: '2026-01-01' }], [{ vendor: [{ day: DAY }] }]])(
    'rejects the query %j',
    async (query) => {
      const { reconcile } = setUp(undefined)
      await expect(reconcile(query as Partial<ReconcileQuery>)).rejects.toMatchObject({ kind: 'invalid-admin-request' })
    },
  )
})
