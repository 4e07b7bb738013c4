import { describe, expect, it } from 'vitest'
import { parseKeyChange, parseNewKey } from '../../governance/test-governance.ts'
import { GatewayError } from '../../../src/core/errors.ts'
import { changeKey, makeKey } from '../../../src/plugins/admin/keyring.ts'
import { effectiveRateLimits } from '../../../src/governance/virtual-key.ts'

function catchError(action: () => unknown): GatewayError {
  try {
    action()
  } catch (error) {
    if (GatewayError.is(error)) return error
    throw error
  }
  throw new Error('The action did not throw.')
}

const identity = { id: 'id', hash: 'hash', prefix: 'sk-bf-0123', createdAt: 0 }

describe('the request body that creates a key', () => {
  it('sets every field', () => {
    const fields = parseNewKey({
      name: 'app',
      description: 'for the app',
      key_format: 'sk-svc',
      budget_limit_cents: 1_050,
      budget_reset_duration: '1w',
      rate_limit_requests: 10,
      rate_limit_reset_duration: '1m',
      rate_limit_tokens: 20,
      token_reset_duration: '1d',
      provider_configs: [{ provider: 'openai', weight: 0.5, allowed_models: ['gpt-*'] }, { provider: 'local' }],
      allowed_models: ['openai/*'],
      max_tokens: 100,
      disable_tools: true,
      plan: 'messages-pro',
      expires_at: '2027-01-31T01:00:00+01:00',
      budget_id: 'team',
      rate_limit_id: 'slow',
    })
    expect(makeKey(identity, fields)).toEqual({
      ...identity,
      name: 'app',
      description: 'for the app',
      active: true,
      budget: { max: 10_500_000_000, every: '1w' },
      requests: { max: 10, every: '1m' },
      tokens: { max: 20, every: '1d' },
      providers: [
        { provider: 'openai', weight: 0.5, allowedModels: ['gpt-*'] },
        { provider: 'local', weight: 1, allowedModels: [] },
      ],
      permissions: { allowedModels: ['openai/*'], maxTokens: 100, disableTools: true },
      plan: 'messages-pro',
      expiresAt: Date.UTC(2027, 0, 31),
      budgetId: 'team',
      rateLimitId: 'slow',
    })
  })

  it('creates an active key without limits from only a name', () => {
    expect(makeKey(identity, parseNewKey({ name: 'app' }))).toEqual({
      ...identity,
      name: 'app',
      description: '',
      active: true,
      providers: [],
      permissions: {},
    })
  })

  it('treats null as absent and the maximum safe integer as unlimited', () => {
    const unlimited = Number.MAX_SAFE_INTEGER
    const fields = {
      name: 'app',
      budget_limit_cents: unlimited,
      rate_limit_requests: unlimited,
      rate_limit_tokens: null,
    }
    expect(makeKey(identity, parseNewKey({ ...fields, plan: null, expires_at: null }))).toEqual(
      makeKey(identity, parseNewKey({ name: 'app' })),
    )
  })

  it.each<[string, unknown]>([
    ['name', undefined],
    ['name', ''],
    ['name', 5],
    ['name', 'x'.repeat(201)],
    ['key_format', 'sk-evil'],
    ['budget_limit_cents', -1],
    ['budget_limit_cents', 0.5],
    ['budget_limit_cents', Number.NaN],
    ['budget_limit_cents', 1e308],
    ['budget_limit_cents', 900_000_001],
    ['budget_limit_cents', '5'],
    ['budget_reset_duration', '1x'],
    ['budget_reset_duration', '-1d'],
    ['budget_reset_duration', '999999999999d'],
    ['budget_reset_duration', ''],
    ['rate_limit_requests', -1],
    ['rate_limit_requests', 1.5],
    ['rate_limit_requests', 1e15],
    ['rate_limit_reset_duration', 3600],
    ['rate_limit_tokens', true],
    ['token_reset_duration', '1M '],
    ['provider_configs', {}],
    ['provider_configs.0.provider', [{ weight: 1 }]],
    ['provider_configs.0.provider', [{ provider: 'a/b' }]],
    ['provider_configs.1.weight', [{ provider: 'a' }, { provider: 'b', weight: -1 }]],
    ['provider_configs.0.url', [{ provider: 'a', url: 'http://evil' }]],
    ['provider_configs.0', ['openai']],
    ['allowed_models', 'all'],
    ['allowed_models.1', ['a', 5]],
    ['max_tokens', 0],
    ['disable_tools', 'yes'],
    ['plan', 'gold'],
    ['plan', '__proto__'],
    ['expires_at', 'tomorrow'],
    ['expires_at', '2027-01-31T00:00:00'],
    ['expires_at', 5],
    ['budget_id', '../x'],
    ['is_active', 'false'],
    ['budget_limit', 5],
    ['constructor', {}],
  ])('is rejected for %s = %j, naming the field', (path, value) => {
    const [field = ''] = path.split('.')
    const error = catchError(() => parseNewKey({ name: 'app', [field]: value }))
    expect(error).toMatchObject({ kind: 'invalid-admin-request', details: { param: path } })
    expect(error.message).toMatch(/expected|no such field/)
    expect(error.message.startsWith(`${path}: `)).toBe(true)
  })

  it.each([undefined, null, [], 'x', 5])('is rejected when it is %j', (body) => {
    expect(catchError(() => parseNewKey(body))).toMatchObject({
      kind: 'invalid-admin-request',
      message: expect.stringContaining('expected an object, such as') as string,
    })
  })

  it('cannot set fields that the gateway assigns', () => {
    const assigned = {
      id: 'mine',
      hash: 'x',
      current_usage_cents: -5,
      is_admin: true,
      key_prefix: 'p',
    }
    expect(makeKey(identity, parseNewKey({ name: 'app', ...assigned }))).toEqual(
      makeKey(identity, parseNewKey({ name: 'app' })),
    )
  })

  it.each(['a\u0000b', '\u202eevil', '<script>', "'; DROP TABLE", '漢字 😀', '\ud800'])(
    'accepts the name %j unchanged',
    (name) => {
      expect(makeKey(identity, parseNewKey({ name })).name).toBe(name)
    },
  )

  it('rejects a duration without a limit', () => {
    expect(catchError(() => makeKey(identity, parseNewKey({ name: 'app', token_reset_duration: '1d' })))).toMatchObject(
      {
        details: { param: 'tokenResetDuration' },
      },
    )
  })
})

describe('the request body that updates a key', () => {
  const key = makeKey(identity, parseNewKey({ name: 'app', budget_limit_cents: 100, max_tokens: 5, plan: 'free' }))

  it('changes only the fields it contains', () => {
    expect(changeKey(key, parseKeyChange({ is_active: false }))).toEqual({ ...key, active: false })
    expect(changeKey(key, parseKeyChange({ budget_reset_duration: '1d' }))).toEqual({
      ...key,
      budget: { max: 1_000_000_000, every: '1d' },
    })
    expect(changeKey(key, parseKeyChange({ budget_limit_cents: 7 }))).toEqual({
      ...key,
      budget: { max: 70_000_000, every: '1M' },
    })
  })

  it('removes fields with null', () => {
    const { budget: _budget, plan: _plan, ...rest } = key
    expect(changeKey(key, parseKeyChange({ budget_limit_cents: null, max_tokens: null, plan: null }))).toEqual({
      ...rest,
      permissions: {},
    })
  })

  it.each([
    [{}],
    [null],
    [[]],
    [{ id: 'x' }],
    [{ is_active: 'false' }],
    [{ is_active: 0 }],
    [{ is_active: null }],
    [{ is_active: [] }],
    [{ is_active: {} }],
  ])('is rejected when it is %j', (body) => {
    expect(catchError(() => parseKeyChange(body)).kind).toBe('invalid-admin-request')
  })
})

describe('plans', () => {
  it.each([
    ['free', 100, 100_000, '1h'],
    ['pro', 1_000, 1_000_000, '1h'],
    ['messages-free', 60, 40_000, '1m'],
    ['messages-basic', 300, 200_000, '1m'],
    ['messages-pro', 1_000, 1_000_000, '1m'],
  ])('%s allows %i requests and %i tokens per %s', (plan, requests, tokens, every) => {
    expect(effectiveRateLimits(makeKey(identity, parseNewKey({ name: 'app', plan })))).toEqual({
      requests: { max: requests, every },
      tokens: { max: tokens, every },
    })
  })

  it.each(['enterprise', 'messages-enterprise'])('%s has no limits', (plan) => {
    expect(effectiveRateLimits(makeKey(identity, parseNewKey({ name: 'app', plan })))).toEqual({})
  })

  it('are overridden by a limit of the key', () => {
    const key = makeKey(identity, parseNewKey({ name: 'app', plan: 'free', rate_limit_requests: 5 }))
    expect(effectiveRateLimits(key)).toEqual({
      requests: { max: 5, every: '1h' },
      tokens: { max: 100_000, every: '1h' },
    })
  })
})
