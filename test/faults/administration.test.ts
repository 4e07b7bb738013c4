import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { callAdminApi, ADMIN_KEY, AUDIT, BUDGETS, KEY_LIST, KEYS, RATE_LIMITS } from '../support/admin-api.ts'
import { sendRequest, CHAT, expectErrorResponse, type Reply, type RequestBody } from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { gate } from '../support/upstream.ts'
import { eventsUntilText } from '../support/upstream-events.ts'

const UNAUTHENTICATED = { status: 401, type: 'authentication_error' }
const INVALID = { status: 400, type: 'validation_error' }

let stage: Stage
beforeAll(async () => {
  stage = await startStage({ admin: { key: ADMIN_KEY } })
})
afterAll(() => stage.close())

const others: Stage[] = []
afterEach(async () => {
  await Promise.all(others.splice(0).map((other) => other.close()))
})

async function startOther(options: StageOptions): Promise<Stage> {
  const other = await startStage(options)
  others.push(other)
  return other
}

function admin(method: string, path: string, body?: RequestBody): Promise<Reply> {
  return callAdminApi(stage, method, path, body)
}

async function createKey(fields: object = {}): Promise<{ readonly id: string; readonly secret: string }> {
  const { body } = await admin('POST', KEYS, { name: 'test', ...fields })
  return { id: String(body['id']), secret: String(body['value']) }
}

/** Routes that require the admin key. */
const ROUTES: readonly (readonly [string, string])[] = [
  ...[KEYS, BUDGETS, RATE_LIMITS].flatMap((path): readonly (readonly [string, string])[] => [
    ['GET', path],
    ['HEAD', path],
    ['POST', path],
    ['GET', `${path}/some`],
    ['PUT', `${path}/some`],
    ['DELETE', `${path}/some`],
  ]),
  ['GET', `${KEYS}/some/usage`],
  ['GET', `${KEYS}/some/rate-limit`],
  ['GET', AUDIT],
  ['GET', '/metrics'],
  ['GET', '/metrics/cache'],
]

describe.each(ROUTES)('%s %s', (method, path) => {
  const send = (at: Stage, headers: Record<string, string>): Promise<Reply> =>
    sendRequest(at, method === 'POST' || method === 'PUT' ? { name: 'x', max_limit: 1, is_active: false } : undefined, {
      method,
      path,
      secret: null,
      headers,
    })

  it('is rejected without the admin key, with a caller’s, and with a wrong, empty, cut or longer one', async () => {
    const wrong: readonly Record<string, string>[] = [
      {},
      { authorization: `Bearer ${stage.secret}` },
      { 'x-bf-vk': stage.secret },
      { 'x-api-key': ADMIN_KEY },
      { 'x-admin-key': '' },
      { 'x-admin-key': stage.secret },
      { 'x-admin-key': ADMIN_KEY.slice(0, -1) },
      { 'x-admin-key': `${ADMIN_KEY}x` },
      { 'x-admin-key': ADMIN_KEY.toUpperCase() },
      { 'x-admin-key': `${ADMIN_KEY}, ${ADMIN_KEY}` },
      { authorization: ADMIN_KEY },
      { authorization: `Basic ${ADMIN_KEY}` },
      { authorization: 'Bearer ' },
      { authorization: 'Bearer undefined' },
    ]
    for (const headers of wrong) {
      const reply = await send(stage, headers)
      expect(reply.status, JSON.stringify(headers)).toBe(401)
      if (method !== 'HEAD') expectErrorResponse(reply, UNAUTHENTICATED)
      expect(reply.text).not.toContain(ADMIN_KEY)
    }
  })

  it('ignores headers that claim a privilege or another method', async () => {
    const claims: readonly Record<string, string>[] = [
      { 'x-admin': 'true' },
      { 'x-role': 'admin' },
      { 'x-middleware-subrequest': 'middleware:middleware:middleware' },
      { 'x-http-method-override': 'GET' },
      { 'x-method-override': 'OPTIONS' },
      { 'x-forwarded-for': '127.0.0.1' },
      { 'x-real-ip': '::1' },
      { 'x-original-url': '/health' },
      { 'x-rewrite-url': '/health' },
      { cookie: `admin_key=${ADMIN_KEY}` },
    ]
    for (const headers of claims) expect((await send(stage, headers)).status, JSON.stringify(headers)).toBe(401)
    expect(
      (await sendRequest(stage, undefined, { method: 'GET', path: `${path}?admin_key=${ADMIN_KEY}` })).status,
    ).toBe(401)
  })

  it('returns an error that explains how to configure the admin API', async () => {
    for (const options of [{}, { admin: {} }]) {
      const other = await startOther(options)
      const reply = await send(other, { 'x-admin-key': '', authorization: 'Bearer undefined' })
      expect(reply.status).toBe(401)
      if (method !== 'HEAD') expect(reply.error['message']).toContain('admin: { key }')
    }
  })
})

it('rejects every other spelling of an admin path without credentials', async () => {
  const spellings = [
    '//metrics',
    '/metrics/',
    '/./metrics',
    '/x/../metrics',
    '/%2e/metrics',
    '/metrics;x=1',
    '/METRICS',
    '/m%65trics',
    '/metrics%2fcache',
    '/metrics%00',
    '/health/../metrics',
    '/health/..%2fmetrics',
    '//api/governance/virtual-keys',
    '/api//governance/virtual-keys',
    '/api/governance/./virtual-keys',
    '/api/governance/virtual-keys/',
    '/api/governance/virtual-keys;x',
    '/api/governance/Virtual-Keys',
    '/api/governance/virtual%2dkeys',
    '/api/governance%2fvirtual-keys',
    '/v1/models/../../api/governance/virtual-keys',
  ]
  for (const path of spellings) {
    const reply = await sendRequest(stage, undefined, { method: 'GET', path, secret: null })
    expect([401, 404], path).toContain(reply.status)
  }
})

describe('the option admin.authorize', () => {
  it.each<[string, NonNullable<NonNullable<StageOptions['admin']>['authorize']>, number]>([
    ['true', () => true, 200],
    ['a promise of true', async () => true, 200],
    ['false', () => false, 401],
    ['a rejection', () => Promise.reject(new Error('secret words')), 401],
    [
      'an exception',
      () => {
        throw new Error('secret words')
      },
      401,
    ],
    ['a text instead of true', () => 'yes' as unknown as boolean, 401],
  ])('applies the result of %s', async (_, authorize, status) => {
    const other = await startOther({ admin: { authorize } })
    const reply = await callAdminApi(other, 'GET', KEYS)
    expect(reply.status).toBe(status)
    expect(reply.text).not.toContain('secret words')
  })

  it('receives the request, and suffices if a key is also set', async () => {
    const authorize = (request: Request): boolean => request.headers.get('x-from') === 'the office'
    const other = await startOther({ admin: { key: ADMIN_KEY, authorize } })
    const asking = (headers: Record<string, string>): Promise<Reply> =>
      sendRequest(other, { name: 'made' }, { path: KEYS, secret: null, headers })

    expect((await asking({ 'x-from': 'the office' })).status).toBe(201)
    expect((await asking({ 'x-admin-key': ADMIN_KEY })).status).toBe(201)
    expect((await asking({ authorization: `Bearer ${ADMIN_KEY}` })).status).toBe(201)
    expect((await asking({ 'x-from': 'the street' })).status).toBe(401)
  })

  it('may read the body of a clone', async () => {
    const authorize = async (request: Request): Promise<boolean> => (await request.clone().text()).includes('signed')
    const other = await startOther({ admin: { authorize } })
    expect((await sendRequest(other, { name: 'signed' }, { path: KEYS, secret: null })).status).toBe(201)
    expect((await sendRequest(other, { name: 'not' }, { path: KEYS, secret: null })).status).toBe(401)
  })
})

it('health and readiness are open and name no address and no secret', async () => {
  for (const path of ['/health', '/ready']) {
    const reply = await sendRequest(stage, undefined, { method: 'GET', path, secret: null })
    expect(reply.status).toBe(200)
    for (const secret of ['127.0.0.1', 'sk-', ADMIN_KEY, stage.upstream.baseUrl])
      expect(reply.text).not.toContain(secret)
  }
})

describe('a secret', () => {
  it('is returned once, at its creation, and contains a random UUID', async () => {
    const { id, secret } = await createKey({ name: 'secretive' })
    const tail = secret.slice(10)
    await sendRequest(stage, CHAT.body, { secret })
    for (const path of [KEYS, `${KEYS}/${id}`, `${KEYS}/${id}/usage`, `${KEYS}/${id}/rate-limit`, AUDIT, '/metrics']) {
      expect((await admin('GET', path)).text).not.toContain(tail)
    }
    expect((await admin('PUT', `${KEYS}/${id}`, { name: 'renamed' })).text).not.toContain(tail)
    const made = await Promise.all(Array.from({ length: 50 }, () => createKey()))
    expect(new Set(made.map((key) => key.secret)).size).toBe(50)
    for (const key of made)
      expect(key.secret).toMatch(/^sk-bf-[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/)
  })
})

describe('a key that is disabled or deleted during a stream', () => {
  it.each(['PUT', 'DELETE'])(
    'by %s: the next request is refused, and the running one completes and is billed',
    async (method) => {
      const { id, secret } = await createKey({ budget_limit_cents: 100 })
      const rest = gate()
      stage.upstream.reply = (request) => ({
        kind: 'events',
        items: (async function* () {
          yield* eventsUntilText(request.dialect)
          await rest.opened
          yield 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}\n\n'
          yield 'data: [DONE]\n\n'
        })(),
      })
      const before = stage.upstream.requests.length
      const running = sendRequest(stage, { ...CHAT.body, stream: true }, { secret })
      await stage.upstream.waitForRequest(before + 1)
      const change = await admin(method, `${KEYS}/${id}`, method === 'PUT' ? { is_active: false } : undefined)
      expect(change.status).toBe(200)
      expectErrorResponse(await sendRequest(stage, CHAT.body, { secret }), UNAUTHENTICATED)
      rest.open()
      const reply = await running
      stage.upstream.reply = () => 'Hello from upstream.'

      expect(reply.status).toBe(200)
      expect(reply.text).toContain('[DONE]')
      const { records } = await stage.gateway.audit.read({ keyId: id })
      expect(records).toMatchObject([{ outcome: 'answered', tokensUsed: 15, costUsd: 0.00003 }])
    },
  )
})

describe('an update', () => {
  it.each<[string, RequestBody]>([
    ['"false"', { is_active: 'false' }],
    ['0', { is_active: 0 }],
    ['null', { is_active: null }],
    ['[]', { is_active: [] }],
    ['{}', { is_active: {} }],
  ])('of is_active to %s is rejected and changes nothing', async (_, body) => {
    const { id, secret } = await createKey()
    expectErrorResponse(await admin('PUT', `${KEYS}/${id}`, body), { ...INVALID, param: 'is_active' })
    expect((await sendRequest(stage, CHAT.body, { secret })).status).toBe(200)
  })

  it.each(['false', '0', 'null', '[]', '{}', '""', '{', '', '{"is_active":}', 'is_active=false', '{"object":"x"}'])(
    'with the body %s is refused',
    async (body) => {
      const { id } = await createKey()
      for (const path of [`${KEYS}/${id}`, `${BUDGETS}/${id}`, `${RATE_LIMITS}/${id}`]) {
        expectErrorResponse(await admin('PUT', path, body), INVALID)
      }
    },
  )
})

describe('a creation', () => {
  it.each<[string, string, Record<string, unknown>]>([
    [KEYS, 'name', {}],
    [KEYS, 'name', { name: '' }],
    [KEYS, 'name', { name: null }],
    [KEYS, 'name', { name: 'x'.repeat(201) }],
    [KEYS, 'name', { name: ['x'] }],
    [KEYS, 'budget_limit_cents', { name: 'x', budget_limit_cents: -1 }],
    [KEYS, 'budget_limit_cents', { name: 'x', budget_limit_cents: 0.5 }],
    [KEYS, 'budget_limit_cents', { name: 'x', budget_limit_cents: 1e308 }],
    [KEYS, 'budget_limit_cents', { name: 'x', budget_limit_cents: '100' }],
    [KEYS, 'budget_limit_cents', { name: 'x', budget_limit_cents: true }],
    [KEYS, 'budget_reset_duration', { name: 'x', budget_limit_cents: 1, budget_reset_duration: '1x' }],
    [KEYS, 'budget_reset_duration', { name: 'x', budget_limit_cents: 1, budget_reset_duration: '-1d' }],
    [KEYS, 'budget_reset_duration', { name: 'x', budget_limit_cents: 1, budget_reset_duration: '999999999999d' }],
    [KEYS, 'budget_reset_duration', { name: 'x', budget_reset_duration: '1d' }],
    [KEYS, 'rate_limit_requests', { name: 'x', rate_limit_requests: 2 ** 53 }],
    [KEYS, 'rate_limit_tokens', { name: 'x', rate_limit_tokens: -5 }],
    [KEYS, 'max_tokens', { name: 'x', max_tokens: 0 }],
    [KEYS, 'disable_tools', { name: 'x', disable_tools: 'no' }],
    [KEYS, 'expires_at', { name: 'x', expires_at: '2027-02-30T00:00:00Z' }],
    [KEYS, 'expires_at', { name: 'x', expires_at: 'tomorrow' }],
    [KEYS, 'plan', { name: 'x', plan: '__proto__' }],
    [KEYS, 'key_format', { name: 'x', key_format: 'sk-' }],
    [KEYS, 'budget_id', { name: 'x', budget_id: 'none-of-this-name' }],
    [KEYS, 'budget_id', { name: 'x', budget_id: '../key:x' }],
    [KEYS, 'rate_limit_id', { name: 'x', rate_limit_id: 'constructor' }],
    [KEYS, 'provider_configs.0.weight', { name: 'x', provider_configs: [{ provider: 'chat', weight: -1 }] }],
    [KEYS, 'provider_configs.0.provider', { name: 'x', provider_configs: [{}] }],
    [KEYS, 'allowed_models.1', { name: 'x', allowed_models: ['a', 5] }],
    [KEYS, 'rate_limit_request', { name: 'x', rate_limit_request: 5 }],
    [BUDGETS, 'max_limit', {}],
    [BUDGETS, 'max_limit', { max_limit: -0.01 }],
    [BUDGETS, 'max_limit', { max_limit: 1e308 }],
    [BUDGETS, 'max_limit', { max_limit: '5' }],
    [BUDGETS, 'reset_duration', { max_limit: 1, reset_duration: '2d' }],
    [BUDGETS, 'id', { max_limit: 1, id: 'a b' }],
    [BUDGETS, 'limit', { max_limit: 1, limit: 2 }],
    [RATE_LIMITS, 'request_max_limit', { request_max_limit: 1.5 }],
    [RATE_LIMITS, 'token_max_limit', { token_max_limit: '9' }],
    [RATE_LIMITS, 'token_reset_duration', { token_max_limit: 9, token_reset_duration: 'day' }],
  ])('at %s with a wrong %s is rejected: %j', async (path, param, body) => {
    expectErrorResponse(await admin('POST', path, JSON.stringify(body)), { ...INVALID, param })
  })

  it.each(['{"name":"x","budget_limit_cents":NaN}', '{"name":"x","budget_limit_cents":1e999}', '{"name":"x",}'])(
    'with %s is refused',
    async (body) => {
      expectErrorResponse(await admin('POST', KEYS, body), INVALID)
    },
  )

  it('keeps a name of any characters as text', async () => {
    const names = [
      'a\u0000b',
      '\u202Egnitirw',
      '<script>alert(1)</script>',
      "'; DROP TABLE keys; --",
      '\ud800',
      '__proto__',
      '日本語 🎉',
      '${7*7} {{7*7}} %n',
    ]
    for (const name of names) {
      const reply = await admin('POST', KEYS, { name })
      expect(reply.status).toBe(201)
      const shown = await admin('GET', `${KEYS}/${String(reply.body['id'])}`)
      expect(shown.body['name']).toBe(name)
    }
  })

  it('ignores fields that only the gateway sets', async () => {
    const given = {
      id: 'chosen',
      value: 'sk-bf-chosen-by-an-attacker-0000',
      hash: '0'.repeat(64),
      key_prefix: 'chosen',
      current_usage_cents: -500,
      created_at: '2000-01-01T00:00:00Z',
      is_admin: true,
      object: 'admin',
    }
    const reply = await admin('POST', KEYS, { name: 'mass', ...given })
    expect(reply.status).toBe(201)
    for (const [field, value] of Object.entries(given)) expect(reply.body[field]).not.toBe(value)
    expect((await sendRequest(stage, CHAT.body, { secret: given.value })).status).toBe(401)
    expect((await admin('GET', `${KEYS}/chosen`)).status).toBe(404)
  })

  it('ignores __proto__ and constructor.prototype, and so do later requests', async () => {
    const text = '{"name":"p","__proto__":{"is_active":false,"polluted":1}}'
    const reply = await admin('POST', KEYS, text)
    expect([reply.status, reply.body['is_active']]).toEqual([201, true])
    expectErrorResponse(await admin('POST', KEYS, '{"name":"p","constructor":{"prototype":{"polluted":1}}}'), {
      ...INVALID,
      param: 'constructor',
    })
    expect(Object.hasOwn(Object.prototype, 'polluted')).toBe(false)
  })
})

describe('an unknown id', () => {
  it.each([
    'none',
    '__proto__',
    'constructor',
    '%00',
    '..',
    '%2e%2e',
    'a%2fb',
    'x'.repeat(500),
    '%ff',
    "'%20OR%201=1",
    '*',
  ])('%s is not found by any method', async (id) => {
    for (const path of [KEYS, BUDGETS, RATE_LIMITS]) {
      for (const [method, body] of [
        ['GET', undefined],
        ['PUT', { name: 'x' }],
        ['DELETE', undefined],
      ] as const) {
        const reply = await admin(method, `${path}/${id}`, body)
        expect([404, 405], `${method} ${path}/${id}`).toContain(reply.status)
      }
    }
    expect((await admin('GET', `${KEYS}/${id}/usage`)).status).toBe(404)
    expect((await admin('GET', `${KEYS}/${id}/rate-limit`)).status).toBe(404)
  })
})

describe('the limits of the calling key', () => {
  const limits = (headers: Record<string, string>, query = ''): Promise<Reply> =>
    sendRequest(stage, undefined, { method: 'GET', path: `${KEYS}/limits${query}`, secret: null, headers })

  it('are returned only to that key', async () => {
    const mine = await createKey({ rate_limit_requests: 11 })
    const other = await createKey({ rate_limit_requests: 22 })
    const reply = await limits({ 'x-bf-vk': mine.secret }, `?key_id=${other.id}&id=${other.id}`)
    expect(reply.body['request_limit']).toBe(11)
    expectErrorResponse(await limits({ 'x-bf-vk': mine.secret, 'x-api-key': other.secret }), UNAUTHENTICATED)
  })

  it('require an active virtual key', async () => {
    const { id, secret } = await createKey()
    await admin('PUT', `${KEYS}/${id}`, { is_active: false })
    for (const headers of [
      {},
      { 'x-admin-key': ADMIN_KEY },
      { authorization: `Bearer ${ADMIN_KEY}` },
      { 'x-bf-vk': secret },
    ]) {
      const reply = await limits(headers)
      expectErrorResponse(reply, UNAUTHENTICATED)
      expect(reply.headers).toMatchObject({ 'x-ratelimit-limit': '0', 'x-ratelimit-remaining': '0' })
    }
  })
})

it('300 keys are listed on one page', async () => {
  const other = await startOther({ admin: { key: ADMIN_KEY } })
  await Promise.all(Array.from({ length: 299 }, (_, index) => other.gateway.keys.create({ name: `key ${index}` })))
  const { keys, has_more } = KEY_LIST.parse((await callAdminApi(other, 'GET', `${KEYS}?limit=300`)).body)
  expect([keys.length, has_more]).toEqual([300, false])
})

it('a body of another type, compressed, or too large is rejected before it is read', async () => {
  const send = (body: RequestBody, headers: Record<string, string>): Promise<Reply> =>
    callAdminApi(stage, 'POST', KEYS, body, { headers })
  expect((await send('name=x', { 'content-type': 'application/x-www-form-urlencoded' })).status).toBe(415)
  expect((await send('{"name":"x"}', { 'content-type': 'text/plain' })).status).toBe(415)
  expect((await send('{"name":"x"}', { 'content-encoding': 'gzip' })).status).toBe(415)
  const small = await startOther({ admin: { key: ADMIN_KEY }, limits: { bodyBytes: 1000 } })
  expect((await callAdminApi(small, 'POST', KEYS, { name: 'x', description: 'y'.repeat(1000) })).status).toBe(413)
})
