import { describe, expect, it } from 'vitest'
import { toNanoUsd } from '../../../src/core/money.ts'
import { type AuditQuery, createAudit } from '../../../src/plugins/audit/audit.ts'
import { readPage } from '../../../src/plugins/audit/audit-query.ts'
import { memoryStore } from '../../../src/stores/memory.ts'
import { bill, finished, START, unanswered } from '../../support/finished.ts'

const newStore = () => memoryStore({ now: () => START })

describe('the audit', () => {
  it('writes one record per request of a key', async () => {
    const store = newStore()
    const audit = createAudit({ store })
    await audit.write(finished())
    expect((await readPage(store)).records).toEqual([
      {
        timestamp: '2026-01-15T12:00:00.000Z',
        key_id: 'key-1',
        customer: null,
        user: null,
        session: null,
        model: 'openai/gpt-x',
        tokens_used: 60,
        cost_cents: 3,
        cost_usd: 0.03,
        request_id: 'request',
        outcome: 'answered',
        status: 200,
        failure: null,
      },
    ])
  })

  it('records rejected, failed and abandoned requests, and requests without a key', async () => {
    const store = newStore()
    const audit = createAudit({ store })
    await audit.write(unanswered({ status: 429, failure: 'rate-limited' }))
    await audit.write(unanswered({ status: 502, failure: 'upstream' }))
    await audit.write(unanswered({ status: 499, failure: 'cancelled' }))
    await audit.write(unanswered({ status: 401, failure: 'unauthenticated', keyId: undefined, model: undefined }))
    const { records } = await readPage(store)
    expect(records.map((record) => [record.outcome, record.status, record.failure, record.key_id])).toEqual([
      ['refused', 429, 'rate-limited', 'key-1'],
      ['failed', 502, 'upstream', 'key-1'],
      ['left', 499, 'cancelled', 'key-1'],
      ['refused', 401, 'unauthenticated', null],
    ])
    expect(records.every((record) => record.cost_cents === 0 && record.tokens_used === 0)).toBe(true)
  })

  it('names the customer, user and session of a request, and finds them', async () => {
    const store = newStore()
    const audit = createAudit({ store })
    const customers = ['acme', 'globex', undefined]
    for (let n = 0; n < 2_600; n += 1) {
      const customer = n === 2_500 ? 'rare' : customers[n % 3]
      const context = { ...(customer !== undefined && { customer }), user: `u${n % 4}`, session: `s${n}` }
      await audit.write(finished({ requestId: String(n), at: START + n, context }))
    }
    const idsOf = async (query: AuditQuery) => {
      const pages: (readonly string[])[] = []
      for (let after: string | undefined, isDone = false; !isDone;) {
        const { records, next } = await readPage(store, { ...query, ...(after !== undefined && { after }) })
        pages.push(records.map(({ request_id }) => request_id))
        isDone = next === undefined
        after = next
      }
      return pages
    }
    const [first, ...rest] = await idsOf({ customer: 'acme', user: 'u1', limit: 100 })
    expect(first).toHaveLength(100)
    expect([first, ...rest].flat()).toEqual(
      Array.from({ length: 2_600 }, (_, n) => n)
        .filter((n) => n % 3 === 0 && n % 4 === 1 && n !== 2_500)
        .map(String),
    )
    expect(await idsOf({ customer: 'rare' })).toEqual([[], ['2500']])
    expect(await idsOf({ session: 's7' })).toEqual([['7'], []])
    expect(await idsOf({ customer: 'unknown', from: START + 2_000 })).toEqual([[]])
    const { records } = await readPage(store, { session: 's7' })
    expect(records).toMatchObject([{ customer: 'globex', user: 'u3', session: 's7' }])
  })

  it('records no tokens and no cost for an answer from the cache', async () => {
    const store = newStore()
    const audit = createAudit({ store })
    await audit.write(finished({ bill: bill({ cache: 'HIT', billed: toNanoUsd(0) }) }))
    expect((await readPage(store)).records[0]).toMatchObject({ tokens_used: 0, cost_cents: 0, outcome: 'answered' })
  })

  it('reads records by key and time, page by page', async () => {
    const store = newStore()
    const audit = createAudit({ store })
    for (let n = 0; n < 20; n += 1) {
      await audit.write(finished({ keyId: `key-${n % 2}`, at: START + n * 1000, requestId: String(n) }))
    }
    const ids: string[] = []
    let after: string | undefined
    do {
      const query = { keyId: 'key-1', from: START + 3_000, to: START + 19_000, limit: 3 }
      const page = await readPage(store, after === undefined ? query : { ...query, after })
      ids.push(...page.records.map((record) => record.request_id))
      after = page.next
    } while (after !== undefined)
    expect(ids).toEqual(['3', '5', '7', '9', '11', '13', '15', '17'])
    expect((await readPage(store, { keyId: 'nobody' })).records).toEqual([])
    expect((await readPage(store, { limit: 5 })).records).toHaveLength(5)
  })

  it('keeps the last 20,000 records of a key', async () => {
    const store = newStore()
    const audit = createAudit({ store })
    for (let n = 0; n <= 20_000; n += 1) {
      await audit.write(
        finished({ keyId: 'key-1', requestId: `12345678-1234-4123-8123-${String(n).padStart(12, '0')}` }),
      )
    }
    let count = 0
    let page = await readPage(store, { keyId: 'key-1', limit: 1000 })
    expect(page.records[0]?.request_id).toMatch(/-000000000001$/)
    for (count = page.records.length; page.next !== undefined; count += page.records.length) {
      page = await readPage(store, { keyId: 'key-1', limit: 1000, after: page.next })
    }
    expect(count).toBe(20_000)
    expect(page.records.at(-1)?.request_id).toMatch(/-000000020000$/)
  })

  it('counts a record that the store refuses, and does not reject', async () => {
    const down = { ...newStore(), append: () => Promise.reject(new Error('down')) }
    const audit = createAudit({ store: down })
    await audit.write(finished())
    expect(audit.dropped()).toBe(1)
  })

  it('truncates names and accepts any text', async () => {
    const store = newStore()
    const audit = createAudit({ store })
    await audit.write(finished({ model: `\ud800"\u2028${'x'.repeat(100_000)}` }))
    expect((await readPage(store)).records[0]?.model).toHaveLength(200)
  })

  it('omits invalid entries', async () => {
    const shared = newStore()
    await shared.append('audit', { at: START, value: '{' })
    await shared.append('audit', { at: START, value: '[]' })
    expect((await readPage(shared)).records).toEqual([])
  })
})
