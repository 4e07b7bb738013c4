import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { sendRequest, CHAT, ENDPOINTS, MESSAGE, type Reply } from '../support/send-request.ts'
import { CHAT_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { recordingStore } from '../support/recording-store.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  stages.push(started)
  return started
}

function explain(of: Stage, body: JsonObject, headers: Record<string, string> = {}, path = CHAT.path): Promise<Reply> {
  return sendRequest(of, body, { path, headers: { 'x-svc-explain': 'true', ...headers } })
}

/** A conversation of about this many tokens. */
function createConversation(turns: number): JsonObject {
  const messages = Array.from({ length: turns }, (_, n) => ({
    role: n % 2 === 0 ? 'user' : 'assistant',
    content: `Turn ${n}: ${`the harbour of town ${n} has ${n * 7} boats and a lighthouse, `.repeat(30)}`,
  }))
  return {
    model: CHAT_MODEL,
    max_tokens: 100,
    messages: [...messages, { role: 'user', content: 'How many boats has the harbour of town 12?' }],
  }
}

describe('a request with X-Svc-Explain', () => {
  it.each(ENDPOINTS)(
    'returns the expected result on the $name endpoint without side effects',
    async ({ path, body }) => {
      const store = recordingStore()
      const started = await stage({ store, key: { name: 'k', budget_limit_cents: 10, rate_limit_requests: 5 } })

      const reply = await explain(started, body, {}, path)

      expect(reply.status).toBe(200)
      expect(reply.headers['x-ratelimit-remaining']).toBe('5')
      expect(reply.body).toMatchObject({
        object: 'svc.explanation',
        model: body['model'],
        would_be: 'asked',
        cache: { state: 'off' },
        tier: { chosen: null, strategy: 'Passthrough (no optimization needed)' },
        margin: 1.5,
        route: [{ model: 'large', role: 'first' }],
        limits: {
          refused: null,
          completion_tokens: 20,
          in_force: [
            { kind: 'requests', limit: 5, left: 5, takes: 1, window: '1h' },
            { kind: 'budget', limit: 0.1, left: 0.1 },
          ],
        },
      })
      expect(started.upstream.requests).toHaveLength(0)
      expect(store.reservationIds).toEqual([])
      expect(await started.gateway.keys.usage(started.keyId)).toMatchObject({ requests: 0 })
    },
  )

  it('has a cost that covers each of several choices', async () => {
    const { body } = await explain(await stage(), { ...CHAT.body, n: 3 })
    const { tokens, cost } = body as { tokens: Record<string, number>; cost: Record<string, number> }

    expect(cost['theoretical_usd']).toBeCloseTo(((tokens['original'] ?? 0) + 2 * 3 * 20) / 1e6, 6)
  })

  it('has both prices, which agree with one another', async () => {
    const { body } = await explain(await stage(), CHAT.body)
    const { tokens, cost } = body as { tokens: Record<string, number>; cost: Record<string, number> }

    const { original = 0, optimized, completion = 0 } = tokens
    expect(completion).toBe(20)
    expect(optimized).toBe(original)
    expect(cost['theoretical_usd']).toBeCloseTo((original + 2 * completion) / 1e6, 6)
    expect(cost['actual_usd']).toBe(cost['theoretical_usd'])
    expect(cost['billed_usd']).toBeCloseTo(1.5 * (cost['theoretical_usd'] ?? 0), 6)
  })

  it('returns whether the cache would answer, without counting a hit or a miss', async () => {
    const started = await stage({ cache: {} })
    const before = await explain(started, CHAT.body)
    await sendRequest(started, CHAT.body)
    const metrics = started.gateway.metrics
    const hits = JSON.stringify(await metrics.cache())

    const same = await explain(started, CHAT.body)
    const other = await explain(started, { ...CHAT.body, messages: [{ role: 'user', content: 'Something else?' }] })

    expect(before.body).toMatchObject({ cache: { state: 'miss' }, would_be: 'asked' })
    expect(same.body).toMatchObject({
      cache: { state: 'exact', similarity: 1, stored_at: expect.any(String) },
      would_be: 'replayed',
      tier: { chosen: 1, strategy: 'Semantic-Cache' },
      cost: { actual_usd: 0, billed_usd: 0 },
    })
    expect(other.body).toMatchObject({ cache: { state: 'miss' } })
    expect(JSON.stringify(await metrics.cache())).toBe(hits)
  })

  it('returns which tier would run and why each other tier would not', async () => {
    const started = await stage()

    const ordered = await explain(started, createConversation(120), { 'x-savings-level': 'extreme' })
    const off = await explain(started, createConversation(120), { 'x-savings-level': 'off' })

    expect(ordered.body).toMatchObject({ tier: { chosen: 5, strategy: 'Savings-Slider (extreme: 16384 tokens)' } })
    const { verdicts } = ordered.body['tier'] as { verdicts: { tier: number; outcome: string; reason: string }[] }
    expect(verdicts.map(({ tier }) => tier).toSorted()).toEqual([2, 3, 4, 5])
    expect(verdicts.every(({ reason }) => reason.length > 0)).toBe(true)
    const { original = 0, optimized = 0, saved } = ordered.body['tokens'] as Record<string, number>
    expect(optimized).toBeLessThanOrEqual(16_384)
    expect(saved).toBe(original - optimized)
    expect(off.body).toMatchObject({ tier: { chosen: null } })
    expect(started.upstream.requests).toHaveLength(0)
  })

  it.each([
    ['x-vanishing-context', 2],
    ['x-svc-rlm', 3],
  ])('with %s calls no small model, writes nothing to the store, and returns the cost', async (header, tier) => {
    const store = recordingStore()
    const written: string[] = []
    const started = await stage({
      store: {
        ...store,
        set: (key, ...rest) => {
          written.push(key)
          return store.set(key, ...rest)
        },
      },
    })
    written.length = 0

    const { body } = await explain(started, createConversation(300), { [header]: 'true', 'x-svc-force': 'true' })

    expect(body).toMatchObject({ tier: { chosen: tier } })
    const { theoretical_usd: theoretical = 0, actual_usd: actual = 0 } = body['cost'] as Record<string, number>
    expect(actual).toBeGreaterThan(0)
    expect(theoretical).toBeGreaterThan(0)
    expect(started.upstream.requests).toHaveLength(0)
    expect(written).toEqual([])
  })

  it('returns how it would be rejected', async () => {
    const poor = await stage({ key: { name: 'k', budget_limit_cents: 0 } })
    const spent = await stage({ key: { name: 'k', rate_limit_requests: 1, rate_limit_reset_duration: '1h' } })
    await sendRequest(spent, CHAT.body)

    const budget = await explain(poor, CHAT.body)
    const limit = await explain(spent, MESSAGE.body, {}, MESSAGE.path)

    expect(budget.body).toMatchObject({
      would_be: 'refused',
      limits: { refused: { status: 402, type: 'budget_exceeded_error', code: 'budget_exceeded' } },
    })
    expect(limit.status).toBe(200)
    expect(limit.body).toMatchObject({
      would_be: 'refused',
      limits: { refused: { status: 429, type: 'rate_limit_error', retry_after: expect.any(Number) } },
    })
  })

  it('lists the fallbacks of a weighted route in their order', async () => {
    const started = await stage({
      key: {
        name: 'k',
        provider_configs: [
          { provider: 'chat', weight: 1 },
          { provider: 'anthropic', weight: 0.5 },
        ],
      },
    })

    const { body } = await explain(started, { ...CHAT.body, model: 'large' })

    expect(body).toMatchObject({
      route: [
        { provider: 'chat', model: 'large', role: 'first' },
        { provider: 'anthropic', model: 'large', role: 'fallback' },
      ],
    })
  })

  it.each([
    [{ secret: null }, {}, 401],
    [{}, { model: 'chat/none' }, 404],
    [{}, { messages: 'none' }, 400],
  ])('is rejected if it is invalid: %j %j', async (options, change, status) => {
    const started = await stage()

    const reply = await sendRequest(
      started,
      { ...CHAT.body, ...change },
      { ...options, headers: { 'x-svc-explain': 'true' } },
    )

    expect(reply.status).toBe(status)
  })
})
