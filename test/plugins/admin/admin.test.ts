import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { toWire } from '../../../src/core/field-names.ts'
import { memoryStore } from '../../../src/index.ts'
import {
  callAdminApi,
  ADMIN_KEY,
  AUDIT,
  AUDIT_PAGE,
  BUDGET,
  BUDGET_LIST,
  BUDGETS,
  CACHE_METRICS,
  CREATED_KEY,
  KEY,
  KEY_LIST,
  KEYS,
  LIMITS,
  METRICS,
  RATE_LIMIT,
  RATE_LIMIT_LIST,
  RATE_LIMITS,
  RATE_STATUS,
  USAGE,
} from '../../support/admin-api.ts'
import { sendRequest, CHAT, MESSAGE, type Reply, type RequestBody } from '../../support/send-request.ts'
import { startStage, type Stage } from '../../support/stage.ts'

const UNLIMITED = Number.MAX_SAFE_INTEGER
const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)

let stage: Stage
beforeAll(async () => {
  stage = await startStage({
    admin: { key: ADMIN_KEY },
    cache: {},
    store: memoryStore({ now: () => NOON }),
    runtime: { now: () => NOON, random: () => 0 },
    governance: { budgets: [{ id: 'configured', max_limit: 1 }] },
  })
})
afterAll(() => stage.close())

function admin(method: string, path: string, body?: RequestBody): Promise<Reply> {
  return callAdminApi(stage, method, path, body)
}

async function create(path: string, body: RequestBody): Promise<{ readonly id: string; readonly reply: Reply }> {
  const reply = await admin('POST', path, body)
  expect(reply.status, reply.text).toBe(201)
  return { id: String(reply.body['id']), reply }
}

describe('virtual keys', () => {
  it('are created from the fields of the specification, and show their secret only once', async () => {
    const { reply } = await create(KEYS, {
      name: 'app',
      budget_limit_cents: 1000,
      budget_reset_duration: '1w',
      rate_limit_requests: 50,
      rate_limit_reset_duration: '1d',
    })

    expect(CREATED_KEY.parse(reply.body)).toMatchObject({
      name: 'app',
      budget_limit_cents: 1000,
      budget_reset_duration: '1w',
      rate_limit_requests: 50,
      rate_limit_reset_duration: '1d',
      rate_limit_tokens: UNLIMITED,
      token_reset_duration: null,
    })
    const value = String(reply.body['value'])
    expect(reply.body['key_prefix']).toBe(value.slice(0, 10))
    const shown = await admin('GET', `${KEYS}/${String(reply.body['id'])}`)
    expect(KEY.parse(shown.body).name).toBe('app')
    expect(shown.text).not.toContain(value.slice(10))
  })

  it('are valid at once with either form of the secret, in both formats and in every header', async () => {
    for (const key_format of ['sk-bf', 'sk-svc']) {
      const { reply } = await create(KEYS, { name: 'app', key_format })
      const value = String(reply.body['value'])
      expect(value.startsWith(`${key_format}-`)).toBe(true)
      for (const endpoint of [CHAT, MESSAGE]) {
        for (const headers of [{ 'x-bf-vk': value }, { 'x-api-key': value }, { authorization: `Bearer ${value}` }]) {
          expect((await sendRequest(stage, endpoint.body, { path: endpoint.path, secret: null, headers })).status).toBe(
            200,
          )
        }
      }
    }
  })

  it('have every settable field, and each can be changed and removed', async () => {
    const fields = {
      name: 'whole',
      description: 'a key',
      budget_limit_cents: 100,
      budget_reset_duration: '1d',
      rate_limit_requests: 5,
      rate_limit_reset_duration: '1m',
      rate_limit_tokens: 500,
      token_reset_duration: '1M',
      provider_configs: [{ provider: 'chat', weight: 2, allowed_models: ['large'] }],
      allowed_models: ['chat/*'],
      max_tokens: 50,
      disable_tools: true,
      cache_similar: true,
      plan: 'pro',
      expires_at: '2030-01-31T00:00:00.000Z',
      budget_id: 'configured',
      rate_limit_id: null,
    }
    const { id, reply } = await create(KEYS, fields)
    expect(reply.body).toMatchObject(fields)

    const away = Object.fromEntries(Object.keys(fields).map((field) => [field, null]))
    const { name: _, ...changes } = away
    const updated = await admin('PUT', `${KEYS}/${id}`, changes)
    expect(KEY.parse(updated.body)).toMatchObject({
      name: 'whole',
      description: '',
      budget_limit_cents: UNLIMITED,
      rate_limit_requests: UNLIMITED,
      rate_limit_tokens: UNLIMITED,
      provider_configs: [],
      allowed_models: null,
      max_tokens: null,
      disable_tools: false,
      cache_similar: null,
      plan: null,
      expires_at: null,
      budget_id: null,
    })
  })

  it('are disabled and enabled again from the next request on', async () => {
    const { id, reply } = await create(KEYS, { name: 'switch' })
    const secret = String(reply.body['value'])
    for (const [is_active, status] of [
      [false, 401],
      [true, 200],
      [false, 401],
    ] as const) {
      const updated = await admin('PUT', `${KEYS}/${id}`, { is_active })
      expect(updated.body['is_active']).toBe(is_active)
      expect((await sendRequest(stage, CHAT.body, { secret })).status).toBe(status)
    }
  })

  it('are deleted, while their audit records remain', async () => {
    const { id, reply } = await create(KEYS, { name: 'gone' })
    const secret = String(reply.body['value'])
    await sendRequest(stage, CHAT.body, { secret })
    const deleted = await admin('DELETE', `${KEYS}/${id}`)

    expect(deleted.body).toEqual({ id, object: 'virtual_key', deleted: true })
    expect((await sendRequest(stage, CHAT.body, { secret })).status).toBe(401)
    for (const [method, body] of [
      ['GET', undefined],
      ['PUT', { is_active: true }],
      ['DELETE', undefined],
    ] as const) {
      expect((await admin(method, `${KEYS}/${id}`, body)).status).toBe(404)
    }
    const trail = await admin('GET', `${AUDIT}?key_id=${id}`)
    expect(AUDIT_PAGE.parse(trail.body).records).toMatchObject([{ key_id: id, model: CHAT.model, status: 200 }])
  })

  it('are listed in pages', async () => {
    for (let count = 0; count < 5; count += 1) await create(KEYS, { name: `listed ${count}` })
    const whole = KEY_LIST.parse((await admin('GET', `${KEYS}?limit=1000`)).body)
    expect(whole.has_more).toBe(false)
    const found: string[] = []
    let after = ''
    for (;;) {
      const page = KEY_LIST.parse((await admin('GET', `${KEYS}?limit=2${after}`)).body)
      found.push(...page.keys.map((key) => key.id))
      if (!page.has_more) break
      after = `&after=${page.keys.at(-1)?.id}`
    }
    expect(found).toEqual(whole.keys.map((key) => key.id))
  })

  it('report usage and remaining limits', async () => {
    const fields = { name: 'used', budget_limit_cents: 100, rate_limit_requests: 7, rate_limit_tokens: 10_000 }
    const { id, reply } = await create(KEYS, fields)
    const secret = String(reply.body['value'])
    stage.upstream.reply = () => ({
      text: 'x',
      usage: { prompt_tokens: 1_000, completion_tokens: 500, total_tokens: 1_500 },
    })
    const body = { ...CHAT.body, messages: [{ role: 'user', content: 'How much is used? '.repeat(60) }] }
    expect((await sendRequest(stage, body, { secret })).headers['x-svc-billed-amount']).toBe('$0.003000')

    const usage = USAGE.parse((await admin('GET', `${KEYS}/${id}/usage`)).body)
    expect(usage).toMatchObject({
      key_id: id,
      period_start: '2026-01-01T00:00:00.000Z',
      budget_limit_cents: 100,
      budget_resets_at: '2026-02-01T00:00:00.000Z',
      requests: 1,
      tokens: { prompt: 1_000, completion: 500, total: 1_500, saved: 0 },
      cost: { theoretical_usd: 0.002, actual_usd: 0.002, billed_usd: 0.003, savings_usd: 0 },
    })
    expect(usage.by_model).toEqual([{ model: CHAT.model, requests: 1, tokens: usage.tokens, cost: usage.cost }])
    expect(RATE_STATUS.parse((await admin('GET', `${KEYS}/${id}/rate-limit`)).body)).toEqual({
      request_limit: 7,
      request_remaining: 6,
      request_reset_at: '2026-01-30T13:00:00.000Z',
      token_limit: 10_000,
      token_remaining: 8_500,
      token_reset_at: '2026-01-30T13:00:00.000Z',
    })
    const limits = await sendRequest(stage, undefined, { method: 'GET', path: `${KEYS}/limits`, secret })
    expect(LIMITS.parse(limits.body)).toMatchObject({
      remaining_requests: 6,
      remaining_tokens: 8_500,
      remaining_budget_cents: 100,
      budget_limit_cents: 100,
    })
    expect(limits.headers).toMatchObject({ 'x-ratelimit-limit': '7', 'x-ratelimit-remaining': '6' })
  })
})

describe('shared budgets', () => {
  it('are created, shown, listed, changed and deleted', async () => {
    const { id, reply } = await create(BUDGETS, { name: 'Team', max_limit: 2.5, reset_duration: '1d' })
    expect(BUDGET.parse(reply.body)).toEqual({
      id,
      object: 'budget',
      name: 'Team',
      max_limit: 2.5,
      reset_duration: '1d',
      current_usage_cents: 0,
      resets_at: '2026-01-31T00:00:00.000Z',
    })
    expect(BUDGET.parse((await admin('PUT', `${BUDGETS}/${id}`, { max_limit: 3 })).body)).toMatchObject({
      name: 'Team',
      max_limit: 3,
      reset_duration: '1d',
    })
    expect((await admin('GET', `${BUDGETS}/${id}`)).body).toMatchObject({ max_limit: 3 })
    const list = BUDGET_LIST.parse((await admin('GET', BUDGETS)).body)
    expect(list.budgets.map((budget) => budget.id)).toEqual(expect.arrayContaining(['configured', id]))
    expect((await admin('DELETE', `${BUDGETS}/${id}`)).body).toEqual({ id, object: 'budget', deleted: true })
    expect((await admin('GET', `${BUDGETS}/${id}`)).status).toBe(404)
  })

  it('accept a given id once', async () => {
    await create(BUDGETS, { id: 'mine', max_limit: 1 })
    const again = await admin('POST', BUDGETS, { id: 'mine', max_limit: 1 })
    expect([again.status, again.error['param']]).toEqual([409, 'id'])
  })

  it('apply to all their keys together, show the spent amount, and reject requests when they are deleted', async () => {
    await create(BUDGETS, { id: 'two', max_limit: 0.01 })
    const secrets = await Promise.all(
      ['a', 'b'].map(async (name) => String((await create(KEYS, { name, budget_id: 'two' })).reply.body['value'])),
    )
    const asking = (index: number): Promise<Reply> =>
      sendRequest(
        stage,
        { ...CHAT.body, messages: [{ role: 'user', content: `Question ${index}?` }], max_tokens: 1000 },
        { secret: secrets[index % 2] ?? '' },
      )
    stage.upstream.reply = () => ({
      text: 'x',
      usage: { prompt_tokens: 20, completion_tokens: 900, total_tokens: 920 },
    })
    const statuses: number[] = []
    for (let index = 0; index < 6; index += 1) statuses.push((await asking(index)).status)

    expect(statuses.slice(0, 3)).toEqual([200, 200, 200])
    expect(statuses.at(-1)).toBe(402)
    const shown = BUDGET.parse((await admin('GET', `${BUDGETS}/two`)).body)
    expect(shown.current_usage_cents).toBe(1)
    await admin('PUT', `${BUDGETS}/two`, { max_limit: 1 })
    expect((await asking(7)).status).toBe(200)
    await admin('DELETE', `${BUDGETS}/two`)
    const refused = await asking(8)
    expect(refused.status).toBe(402)
    expect(refused.error['message']).toContain('no longer exists')
  })
})

describe('shared rate limits', () => {
  it('are created, shown, listed, changed and deleted', async () => {
    const { id, reply } = await create(RATE_LIMITS, {
      name: 'Slow',
      request_max_limit: 5,
      request_reset_duration: '1m',
    })
    expect(RATE_LIMIT.parse(reply.body)).toEqual({
      id,
      object: 'rate_limit',
      name: 'Slow',
      request_max_limit: 5,
      request_reset_duration: '1m',
      token_max_limit: UNLIMITED,
      token_reset_duration: null,
    })
    const changed = await admin('PUT', `${RATE_LIMITS}/${id}`, { request_max_limit: null, token_max_limit: 9 })
    expect(RATE_LIMIT.parse(changed.body)).toMatchObject({
      name: 'Slow',
      request_max_limit: UNLIMITED,
      request_reset_duration: null,
      token_max_limit: 9,
      token_reset_duration: '1h',
    })
    expect(RATE_LIMIT_LIST.parse((await admin('GET', RATE_LIMITS)).body).rate_limits.map((one) => one.id)).toContain(id)
    expect((await admin('DELETE', `${RATE_LIMITS}/${id}`)).body).toEqual({ id, object: 'rate_limit', deleted: true })
  })

  it('count the requests of all their keys together', async () => {
    await create(RATE_LIMITS, { id: 'three', request_max_limit: 3 })
    const secrets = await Promise.all(
      ['a', 'b'].map(async (name) =>
        String((await create(KEYS, { name, rate_limit_id: 'three' })).reply.body['value']),
      ),
    )
    const replies: Reply[] = []
    for (let index = 0; index < 4; index += 1) {
      replies.push(await sendRequest(stage, CHAT.body, { secret: secrets[index % 2] ?? '' }))
    }
    expect(replies.map((reply) => reply.status)).toEqual([200, 200, 200, 429])
    expect(replies.map((reply) => reply.headers['x-ratelimit-remaining'])).toEqual(['2', '1', '0', '0'])
  })
})

it('accepts its own records as updates', async () => {
  for (const [path, body] of [
    [KEYS, { name: 'same', budget_limit_cents: 5, rate_limit_tokens: 7 }],
    [BUDGETS, { max_limit: 1 }],
    [RATE_LIMITS, { token_max_limit: 5 }],
  ] as const) {
    const { id } = await create(path, body)
    const before = await admin('GET', `${path}/${id}`)
    const put = await admin('PUT', `${path}/${id}`, before.text)
    expect(put.status, put.text).toBe(200)
    expect(put.body).toEqual(before.body)
  }
})

describe('the audit trail', () => {
  it('is read by key, time and page, and includes rejected requests', async () => {
    const { id, reply } = await create(KEYS, { name: 'traced', allowed_models: ['chat/large'], rate_limit_requests: 3 })
    const secret = String(reply.body['value'])
    await sendRequest(stage, CHAT.body, { secret })
    await sendRequest(stage, { ...CHAT.body, model: 'chat/small' }, { secret })
    await sendRequest(stage, { ...MESSAGE.body, model: 'chat/large', stream: true }, { secret, path: MESSAGE.path })
    await sendRequest(stage, CHAT.body, { secret })
    await sendRequest(stage, CHAT.body, { secret })
    const trail = async (query: string) => AUDIT_PAGE.parse((await admin('GET', `${AUDIT}?key_id=${id}${query}`)).body)

    const whole = await trail('')
    expect(whole.records.map((record) => [record.outcome, record.status, record.failure])).toEqual([
      ['answered', 200, null],
      ['refused', 403, 'model-not-allowed'],
      ['answered', 200, null],
      ['answered', 200, null],
      ['refused', 429, 'rate-limited'],
    ])
    expect(whole).toMatchObject({ has_more: false, next: null })
    const first = await trail('&limit=3')
    expect(first.has_more).toBe(true)
    const rest = await trail(`&limit=3&after=${first.next}`)
    expect([...first.records, ...rest.records]).toEqual(whole.records)
    expect((await trail(`&from=2026-01-30T12:12:12Z&to=2026-01-30T12:12:13Z`)).records).toHaveLength(5)
    expect((await trail(`&from=2026-01-30T12:12:13Z`)).records).toEqual([])
    expect((await trail(`&to=2026-01-30T12:12:12Z`)).records).toEqual([])
  })

  it.each([
    ['key_id', 'a b'],
    ['from', 'yesterday'],
    ['from', '2026-01-30'],
    ['to', '5'],
    ['limit', '0'],
    ['limit', '1001'],
    ['limit', '1e2'],
    ['limit', 'x'],
    ['after', 'a\u0000b'],
    ['after', 'x'.repeat(500)],
  ])('rejects %s=%j and reports the parameter', async (param, value) => {
    const reply = await admin('GET', `${AUDIT}?${param}=${encodeURIComponent(value)}`)
    expect([reply.status, reply.error['type'], reply.error['param']]).toEqual([400, 'validation_error', param])
  })
})

describe('the metrics', () => {
  it('are JSON in the specified form', async () => {
    const { body, headers } = await admin('GET', '/metrics')
    expect(METRICS.parse(body).optimizer.requests_total).toBeGreaterThan(0)
    expect(headers['content-type']).toBe('application/json')
    expect(body).toEqual(toWire(stage.gateway.metrics.summary()))
  })

  it.each([
    ['text/plain', true],
    ['text/plain; version=0.0.4', true],
    ['application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1', true],
    ['application/json, text/plain, */*', false],
    ['*/*', false],
    ['text/html', false],
  ])('for a client that accepts %s are Prometheus text: %s', async (accept, isText) => {
    const reply = await callAdminApi(stage, 'GET', '/metrics', undefined, { headers: { accept } })
    expect(reply.status).toBe(200)
    expect(reply.headers['content-type']).toBe(isText ? 'text/plain; version=0.0.4; charset=utf-8' : 'application/json')
    expect(reply.headers['vary']).toBe('Accept')
    const lines = reply.text.trimEnd().split('\n')
    const wrong = lines.filter((line) => !/^(# (HELP|TYPE) \w+ .+|\w+(\{\w+="[\w.]+"\})? [\d.e-]+)$/.test(line))
    expect(isText ? wrong : []).toEqual([])
  })

  it('of the cache count its look-ups', async () => {
    const before = CACHE_METRICS.parse((await admin('GET', '/metrics/cache')).body)
    const { secret } = stage
    for (let count = 0; count < 3; count += 1) {
      await sendRequest(
        stage,
        { ...CHAT.body, messages: [{ role: 'user', content: 'Counted by the cache?' }] },
        { secret },
      )
    }
    const after = CACHE_METRICS.parse((await admin('GET', '/metrics/cache')).body)
    expect(after.total_requests - before.total_requests).toBe(3)
    expect(after.cache_hits - before.cache_hits).toBe(2)
    expect(after.cache_misses - before.cache_misses).toBe(1)
    expect(after.hit_rate).toBeCloseTo(after.cache_hits / after.total_requests)
    expect(after).toEqual(toWire(stage.gateway.metrics.cache()))
  })

  it('of a gateway without a cache are zeros', async () => {
    const other = await startStage({ admin: { key: ADMIN_KEY } })
    const reply = await callAdminApi(other, 'GET', '/metrics/cache')
    expect(reply.body).toEqual({ hit_rate: 0, total_requests: 0, cache_hits: 0, cache_misses: 0 })
    await other.close()
  })
})

it('every response has its id twice and forbids caching', async () => {
  for (const path of [
    KEYS,
    BUDGETS,
    RATE_LIMITS,
    AUDIT,
    '/metrics',
    '/metrics/cache',
    `${KEYS}/none`,
    `${KEYS}?limit=x`,
  ]) {
    const { headers } = await admin('GET', path)
    expect(headers['x-request-id']).toMatch(/^req_[0-9a-f]{32}$/)
    expect(headers['request-id']).toBe(headers['x-request-id'])
    expect(headers['cache-control']).toBe('no-store')
  }
})
