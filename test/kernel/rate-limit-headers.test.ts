import { afterEach, describe, expect, it } from 'vitest'
import { memoryStore, type NewKey, type WireForm } from '../../src/index.ts'
import { periodOf, type DurationCode } from '../../src/core/store.ts'
import { callAdminApi, ADMIN_KEY, KEYS } from '../support/admin-api.ts'
import { sendRequest, CHAT, FORMAT_PAIRS, ENDPOINTS, MESSAGE, type Reply } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function start(clock: { now: number }, key: Partial<WireForm<NewKey>> = {}): Promise<Stage> {
  const now = (): number => clock.now
  const stage = await startStage({
    store: memoryStore({ now }),
    runtime: { now, random: () => 0 },
    admin: { key: ADMIN_KEY },
    key: { name: 'limited', ...key },
  })
  stages.push(stage)
  return stage
}

const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)
const HOUR_END = String(Date.UTC(2026, 0, 30, 13) / 1000)
const UNLIMITED = '9007199254740991'

function rateLimitHeaders({ headers }: Reply): readonly unknown[] {
  return [headers['x-ratelimit-limit'], headers['x-ratelimit-remaining'], headers['x-ratelimit-reset']]
}

describe('X-RateLimit-Limit, -Remaining and -Reset', () => {
  it.each(FORMAT_PAIRS)(
    'are sent with every response to a limited key, including streams and errors ($name)',
    async (endpoint) => {
      const stage = await start({ now: NOON }, { rate_limit_requests: 100, allowed_models: [endpoint.model] })
      const { path, body } = endpoint
      const send = (more: object = {}, headers = {}): Promise<Reply> =>
        sendRequest(stage, { ...body, ...more }, { path, headers })
      const expectHeaders = (reply: Reply, status: number, remaining: number): void => {
        expect([reply.status, ...rateLimitHeaders(reply)]).toEqual([status, '100', String(remaining), HOUR_END])
      }

      expectHeaders(await send(), 200, 99)
      expectHeaders(await send({ stream: true }), 200, 98)
      // Requests rejected before they are counted use no quota.
      expectHeaders(await send({ model: 'chat/small' }), 403, 98)
      expectHeaders(await send({ model: 'none/none' }), 404, 98)
      expectHeaders(await send({ messages: [] }), 400, 98)
      expectHeaders(await send({}, { 'content-type': 'text/plain' }), 415, 98)
      expectHeaders(await send({}, { 'x-savings-level': 'most' }), 400, 98)
      expectHeaders(await sendRequest(stage, '{', { path }), 400, 98)
      // Requests that reached an upstream stay counted.
      stage.upstream.reply = () => ({ kind: 'failure', status: 400 })
      expectHeaders(await send(), 400, 97)
      stage.upstream.reply = () => ({ kind: 'json', value: {} })
      expectHeaders(await send(), 502, 96)
      stage.upstream.reply = () => ({ kind: 'failure', status: 429, headers: { 'retry-after': '100' } })
      expectHeaders(await send({ stream: true }), 429, 95)
      const models = await sendRequest(stage, undefined, { method: 'GET', path: '/v1/models' })
      expectHeaders(models, 200, 95)
      expectHeaders(
        await sendRequest(stage, undefined, { method: 'GET', path: `/v1/models/${endpoint.model}` }),
        200,
        95,
      )
      expectHeaders(await sendRequest(stage, undefined, { method: 'GET', path: `${KEYS}/limits` }), 200, 95)
      for (const [method, path, status] of [
        ['GET', '/v1/models/none', 404],
        ['GET', '/v1/models?limit=x', 400],
        ['GET', '/nowhere', 404],
        ['GET', CHAT.path, 405],
        ['GET', KEYS, 401],
      ] as const) {
        expectHeaders(await sendRequest(stage, undefined, { method, path }), status, 95)
      }
    },
  )

  it('of a key without limits are the maximum safe integer until the end of the hour', async () => {
    const stage = await start({ now: NOON })
    for (const { path, body } of ENDPOINTS) {
      expect(rateLimitHeaders(await sendRequest(stage, body, { path }))).toEqual([UNLIMITED, UNLIMITED, HOUR_END])
    }
  })

  it('without a valid key are 0 and 0', async () => {
    const stage = await start({ now: NOON })
    const { id, value } = await stage.gateway.keys.create({ name: 'off', is_active: false, rate_limit_requests: 5 })
    const expired = await stage.gateway.keys.create({ name: 'late', expires_at: '2026-01-30T12:12:12Z' })
    for (const secret of [null, 'wrong', value, expired.value, id]) {
      for (const { path, body } of ENDPOINTS) {
        const reply = await sendRequest(stage, body, { path, secret })
        expect([reply.status, ...rateLimitHeaders(reply)]).toEqual([401, '0', '0', HOUR_END])
      }
      const models = await sendRequest(stage, undefined, { method: 'GET', path: '/v1/models', secret })
      expect([models.status, ...rateLimitHeaders(models)]).toEqual([401, '0', '0', HOUR_END])
    }
    const nowhere = await sendRequest(stage, undefined, { method: 'GET', path: '/nowhere', secret: null })
    expect([nowhere.status, ...rateLimitHeaders(nowhere)]).toEqual([404, '0', '0', HOUR_END])
  })

  it('are 0 and 0 if the store fails, and the request is recorded nevertheless', async () => {
    const store = memoryStore({ now: () => NOON })
    let away = false
    const failing = (): Promise<never> => Promise.reject(new Error('The store is away.'))
    const logged: unknown[] = []
    const stage = await startStage({
      store: {
        ...store,
        local: false,
        reserve: (request) => (away ? failing() : store.reserve(request)),
        levels: (counters) => (away ? failing() : store.levels(counters)),
      },
      runtime: { now: () => NOON, random: () => 0 },
      log: (record) => logged.push(record),
      key: { name: 'limited', rate_limit_requests: 5 },
    })
    stages.push(stage)
    expect(rateLimitHeaders(await sendRequest(stage, CHAT.body))).toEqual(['5', '4', HOUR_END])
    away = true
    for (const [body, status] of [
      [CHAT.body, 503],
      [{ ...CHAT.body, messages: [] }, 400],
    ] as const) {
      const reply = await sendRequest(stage, body)
      expect([reply.status, ...rateLimitHeaders(reply)]).toEqual([status, '0', '0', HOUR_END])
      expect(logged.at(-1)).toMatchObject({ virtual_key_id: stage.keyId, status })
    }
    expect(stage.gateway.metrics.summary()).toMatchObject({ optimizer: { requestsTotal: 3 } })
  })

  it('describe the token limit when it rejects the request', async () => {
    const stage = await start(
      { now: NOON },
      { rate_limit_requests: 9, rate_limit_tokens: 5, token_reset_duration: '1d' },
    )
    const reply = await sendRequest(stage, CHAT.body)
    const end = Date.UTC(2026, 0, 31)
    expect([reply.status, ...rateLimitHeaders(reply)]).toEqual([429, '5', '5', String(end / 1000)])
    expect(reply.headers['retry-after']).toBe(String((end - NOON) / 1000))
    expect(reply.error['retry_after']).toBe((end - NOON) / 1000)
  })

  it.each([
    ['free', 100, '1h'],
    ['pro', 1_000, '1h'],
    ['messages-free', 60, '1m'],
    ['messages-basic', 300, '1m'],
    ['messages-pro', 1_000, '1m'],
  ] as const)('of the plan %s are %i per window of %s', async (plan, limit, every) => {
    const stage = await start({ now: NOON }, { plan })
    const reply = await sendRequest(stage, CHAT.body)
    expect(rateLimitHeaders(reply)).toEqual([
      String(limit),
      String(limit - 1),
      String(periodOf(NOON, every).end / 1000),
    ])
  })

  it('of the enterprise plans are unlimited, unless the key sets a limit', async () => {
    const stage = await start({ now: NOON }, { plan: 'enterprise' })
    expect(rateLimitHeaders(await sendRequest(stage, CHAT.body))[0]).toBe(UNLIMITED)
    await callAdminApi(stage, 'PUT', `${KEYS}/${stage.keyId}`, { rate_limit_requests: 7 })
    expect(rateLimitHeaders(await sendRequest(stage, CHAT.body)).slice(0, 2)).toEqual(['7', '6'])
  })
})

const EDGES: readonly (readonly [DurationCode, string, string])[] = [
  ['1m', '2026-01-30T12:12:59.999Z', '2026-01-30T12:13:00Z'],
  ['1h', '2026-03-29T00:59:59.999Z', '2026-03-29T01:00:00Z'],
  ['1d', '2028-02-28T23:59:59.999Z', '2028-02-29T00:00:00Z'],
  ['1d', '2028-02-29T23:59:59.999Z', '2028-03-01T00:00:00Z'],
  ['1w', '2027-01-03T23:59:59.999Z', '2027-01-04T00:00:00Z'],
  ['1M', '2026-01-31T23:59:59.999Z', '2026-02-01T00:00:00Z'],
  ['1M', '2028-02-29T23:59:59.999Z', '2028-03-01T00:00:00Z'],
  ['1M', '2026-12-31T23:59:59.999Z', '2027-01-01T00:00:00Z'],
]

describe.each(EDGES)('a window of %s at %s', (every, last, next) => {
  it('rejects until its last millisecond, is reset with the next, and applies again when the clock is set back', async () => {
    const clock = { now: Date.parse(last) }
    const limits = { rate_limit_requests: 2, rate_limit_reset_duration: every }
    const tokens = { rate_limit_tokens: 100_000, token_reset_duration: every }
    const stage = await start(clock, { ...limits, ...tokens, budget_limit_cents: 100, budget_reset_duration: every })
    const send = (): Promise<Reply> => sendRequest(stage, MESSAGE.body, { path: MESSAGE.path })
    const end = String(Date.parse(next) / 1000)

    expect(rateLimitHeaders(await send())).toEqual(['2', '1', end])
    expect(rateLimitHeaders(await send())).toEqual(['2', '0', end])
    const rejected = await send()
    expect([rejected.status, rejected.headers['retry-after'], ...rateLimitHeaders(rejected)]).toEqual([
      429,
      '1',
      '2',
      '0',
      end,
    ])
    const before = await stage.gateway.keys.usage(stage.keyId)
    expect(before).toMatchObject({ requests: 2, budgetResetsAt: new Date(next).toISOString() })

    clock.now = Date.parse(next)
    expect(await stage.gateway.keys.usage(stage.keyId)).toMatchObject({ requests: 0, currentUsageCents: 0 })
    const fresh = await send()
    expect([fresh.status, ...rateLimitHeaders(fresh)]).toEqual([
      200,
      '2',
      '1',
      String(periodOf(Date.parse(next), every).end / 1000),
    ])

    clock.now = Date.parse(last)
    expect((await send()).status).toBe(429)
    expect(await stage.gateway.keys.usage(stage.keyId)).toEqual(before)
  })
})
