import { afterAll, beforeAll, expect, it } from 'vitest'
import { createGateway, type Gateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { DURATION_CODES } from '../../src/core/store.ts'
import { PLAN_NAMES } from '../../src/governance/virtual-key.ts'
import {
  ADMIN_KEY,
  AUDIT,
  AUDIT_PAGE,
  BUDGET,
  BUDGET_LIST,
  BUDGETS,
  CREATED_KEY,
  KEY,
  KEY_LIST,
  KEYS,
  RATE_LIMIT,
  RATE_LIMIT_LIST,
  RATE_LIMITS,
} from '../support/admin-api.ts'
import { cases, fc } from '../support/properties.ts'

let gateway: Gateway
let ids: readonly string[]
beforeAll(async () => {
  gateway = createGateway({ providers: [extractive()], admin: { key: ADMIN_KEY } })
  const budget = await gateway.budgets.create({ id: 'shared', max_limit: 5 })
  const rateLimit = await gateway.rateLimits.create({ id: 'shared', request_max_limit: 5 })
  const key = await gateway.keys.create({ name: 'shared' })
  ids = [key.id, budget.id, rateLimit.id]
})
afterAll(() => gateway.close())

async function send(method: string, path: string, body?: string): Promise<{ status: number; body: unknown }> {
  const headers = { 'x-admin-key': ADMIN_KEY, 'content-type': 'application/json' }
  const response = await gateway.fetch(new Request(`http://gateway${path}`, { method, headers, body: body ?? null }))
  return { status: response.status, body: await response.json() }
}

const FIELDS = [
  '',
  'name',
  'description',
  'budget_limit_cents',
  'budget_reset_duration',
  'rate_limit_requests',
  'rate_limit_reset_duration',
  'rate_limit_tokens',
  'token_reset_duration',
  'provider_configs',
  'allowed_models',
  'max_tokens',
  'disable_tools',
  'plan',
  'expires_at',
  'budget_id',
  'rate_limit_id',
  'is_active',
  'key_format',
  'id',
  'max_limit',
  'reset_duration',
  'request_max_limit',
  'request_reset_duration',
  'token_max_limit',
  'value',
  'hash',
  'object',
  '__proto__',
  'constructor',
  'toString',
  'provider',
  'weight',
]

/** Valid values of some field, values that are never valid, and arbitrary JSON. */
const value: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(null, true, false, 0, 1, -1, 100, 0.5, 1e308, -1e308, 2 ** 53, 2 ** 53 - 1, 1e12, ''),
  fc.constantFrom<unknown>(...DURATION_CODES, ...PLAN_NAMES, 'sk-bf', 'sk-svc', 'shared', '2030-01-01T00:00:00Z'),
  fc.constantFrom<unknown>('__proto__', 'a\u0000b', '\ud800', '\u202Ex', '../x', 'x'.repeat(300), '1e5', 'NaN'),
  fc.constantFrom<unknown>([], {}, [{ provider: 'a', weight: 1 }], ['openai/*'], [null], [[]], { max: 1 }),
  fc.string({ unit: 'binary' }),
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.jsonValue({ maxDepth: 3 }),
)

const text = fc.oneof(
  {
    weight: 8,
    arbitrary: fc
      .array(fc.tuple(fc.constantFrom(...FIELDS), value), { maxLength: 6 })
      // Serialized by hand to send __proto__ and repeated fields unchanged.
      .map((fields) => `{${fields.map(([name, one]) => `${JSON.stringify(name)}:${JSON.stringify(one)}`).join(',')}}`),
  },
  { weight: 1, arbitrary: fc.json() },
  { weight: 1, arbitrary: fc.string({ unit: 'binary' }) },
)

const CREATED = [CREATED_KEY, BUDGET, RATE_LIMIT]
const SHOWN = [KEY, BUDGET, RATE_LIMIT]
const PATHS = [KEYS, BUDGETS, RATE_LIMITS]

it('every admin request is applied completely or rejected with the name of the invalid field', async () => {
  const kind = fc.nat(2)
  await fc.assert(
    fc.asyncProperty(kind, fc.boolean(), text, async (index, creates, body) => {
      const path = PATHS[index] ?? KEYS
      const target = creates ? path : `${path}/${ids[index]}`
      const before = creates ? undefined : (await send('GET', target)).body
      const reply = await send(creates ? 'POST' : 'PUT', target, body)

      if (reply.status === 400) {
        expect(reply.body).toMatchObject({ error: { type: 'validation_error' } })
        const { message, param } = (reply.body as { error: { message: string; param: string | null } }).error
        expect(message.length).toBeGreaterThan(10)
        expect(message.length).toBeLessThan(600)
        if (param !== null) expect(message).toContain(param)
        if (!creates) expect((await send('GET', target)).body).toEqual(before)
      } else if (reply.status === 409) {
        expect(reply.body).toMatchObject({ error: { param: 'id' } })
      } else {
        expect(reply.status, JSON.stringify(reply.body)).toBe(creates ? 201 : 200)
        ;(creates ? CREATED : SHOWN)[index]?.parse(reply.body)
      }
    }),
    { numRuns: cases(2000) },
  )
  expect(KEY_LIST.parse((await send('GET', `${KEYS}?limit=1000`)).body).keys.length).toBeGreaterThan(0)
  expect(BUDGET_LIST.parse((await send('GET', `${BUDGETS}?limit=1000`)).body).budgets.length).toBeGreaterThan(0)
  expect(
    RATE_LIMIT_LIST.parse((await send('GET', `${RATE_LIMITS}?limit=1000`)).body).rate_limits.length,
  ).toBeGreaterThan(0)
  expect(Object.keys(Object.prototype)).toEqual([])
})

it('every query of a list returns a page or an error with the name of the parameter', async () => {
  const query = fc.dictionary(
    fc.constantFrom('limit', 'after', 'key_id', 'from', 'to', 'x'),
    fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('5', '0', '1001', '-1', '1e1', 'shared', '2026-01-01T00:00:00Z'),
    ),
    { maxKeys: 3 },
  )
  const lists = [
    [KEYS, KEY_LIST],
    [BUDGETS, BUDGET_LIST],
    [RATE_LIMITS, RATE_LIMIT_LIST],
    [AUDIT, AUDIT_PAGE],
  ] as const
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...lists), query, async ([path, shape], given) => {
      const reply = await send('GET', `${path}?${new URLSearchParams(given).toString()}`)
      if (reply.status === 200) shape.parse(reply.body)
      else {
        const { param } = (reply.body as { error: { param: string } }).error
        expect([reply.status, Object.keys(given).includes(param)]).toEqual([400, true])
      }
    }),
    { numRuns: cases(500) },
  )
})
