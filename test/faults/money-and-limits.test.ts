import { afterEach, describe, expect, it } from 'vitest'
import { openaiCompatible, type Gateway } from '../../src/index.ts'
import {
  sendRequest,
  CHAT,
  FORMAT_PAIRS,
  expectErrorResponse,
  ENDPOINTS,
  MESSAGE,
  type Endpoint,
  type Reply as ClientReply,
} from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { gate, HANG, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { eventsUntilText } from '../support/upstream-events.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

type Fields = Parameters<Gateway['keys']['create']>[0]

interface RecordedStage extends Stage {
  readonly store: RecordingStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

/** 12:12 on a Friday, so that no window ends during a test. */
const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)

interface Clock {
  now: number
}

async function startOne(
  key: Partial<Fields>,
  options: StageOptions & { readonly clock?: Clock } = {},
): Promise<RecordedStage> {
  const { clock = { now: NOON }, ...others } = options
  const now = (): number => clock.now
  const store = recordingStore(now)
  const stage = await startStage({
    store,
    runtime: { now, random: () => 0 },
    key: { name: 'limited', ...key },
    ...others,
  })
  stages.push(stage)
  return { ...stage, store }
}

const LIMITED = { status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded' }
const EXCEEDED = { status: 402, type: 'budget_exceeded_error', code: 'budget_exceeded' }

function sendConcurrently(
  count: number,
  request: (index: number) => Promise<ClientReply>,
): Promise<readonly ClientReply[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => request(index)))
}

function countByStatus(replies: readonly ClientReply[]): Readonly<Record<number, number>> {
  const counts: Record<number, number> = {}
  for (const { status } of replies) counts[status] = (counts[status] ?? 0) + 1
  return counts
}

/** A response with this usage in the format of the upstream. */
function replyWithUsage(request: UpstreamRequest, input: number, output: number): Reply {
  return {
    text: 'word '.repeat(output),
    usage:
      request.dialect === 'chat'
        ? { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
        : { input_tokens: input, output_tokens: output },
  }
}

/** Reported prompt tokens are clamped to the bytes of the prompt. */
function longQuestion(words: number): { role: string; content: string }[] {
  return [{ role: 'user', content: 'word '.repeat(words) }]
}

describe('a request limit', () => {
  it('of 100 per hour accepts exactly 100 of 300 concurrent requests', async () => {
    const stage = await startOne({ rate_limit_requests: 100, rate_limit_reset_duration: '1h' })
    const endpoints = [CHAT, MESSAGE]
    const replies = await sendConcurrently(300, (index) => {
      const endpoint = endpoints[index % 2] as Endpoint
      return sendRequest(stage, { ...endpoint.body, stream: index % 3 === 0 }, { path: endpoint.path })
    })

    expect(countByStatus(replies)).toEqual({ 200: 100, 429: 200 })
    expect(stage.upstream.requests).toHaveLength(100)
    const end = Date.UTC(2026, 0, 30, 13) / 1000
    for (const reply of replies.filter(({ status }) => status === 429)) {
      expectErrorResponse(reply, LIMITED)
      expect(reply.error['retry_after']).toBe(end - NOON / 1000)
      expect(reply.headers).toMatchObject({
        'retry-after': String(end - NOON / 1000),
        'x-should-retry': 'false',
        'x-ratelimit-limit': '100',
        'x-ratelimit-remaining': '0',
        'x-ratelimit-reset': String(end),
      })
    }
    const remaining = replies
      .filter(({ status }) => status === 200)
      .map((reply) => Number(reply.headers['x-ratelimit-remaining']))
    expect(new Set(remaining).size).toBe(100)
    expect(Math.min(...remaining)).toBe(0)
    expect(Math.max(...remaining)).toBe(99)
  })

  it('decreases by one with each request, and equals the report of the key', async () => {
    const stage = await startOne({ rate_limit_requests: 10 })
    for (let left = 9; left >= 5; left -= 1) {
      const reply = await sendRequest(stage, CHAT.body)
      expect(reply.headers['x-ratelimit-remaining']).toBe(String(left))
      expect(JSON.stringify(await stage.gateway.keys.rateLimit(stage.keyId))).toContain(`:${left},`)
    }
    expect(
      (await sendRequest(stage, undefined, { method: 'GET', path: '/v1/models' })).headers['x-ratelimit-remaining'],
    ).toBe('5')
  })

  it('does not count requests that were rejected earlier, and counts requests that fail', async () => {
    const stage = await startOne({ rate_limit_requests: 10, allowed_models: ['chat/large', 'anthropic/*'] })
    await sendRequest(stage, 'no JSON')
    await sendRequest(stage, { ...CHAT.body, model: 'chat/none' })
    await sendRequest(stage, { ...CHAT.body, model: 'chat/small' })
    await sendRequest(stage, CHAT.body, { secret: 'wrong' })
    expect((await sendRequest(stage, CHAT.body)).headers['x-ratelimit-remaining']).toBe('9')

    stage.upstream.reply = () => ({ kind: 'failure', status: 400 })
    expect((await sendRequest(stage, CHAT.body)).headers['x-ratelimit-remaining']).toBe('8')
    stage.upstream.reply = () => 'Hello.'
    expect((await sendRequest(stage, CHAT.body)).headers['x-ratelimit-remaining']).toBe('7')
  })

  it('that is reached charges nothing for the requests that it rejects', async () => {
    const stage = await startOne({ rate_limit_requests: 1, budget_limit_cents: 1_000, rate_limit_tokens: 1_000_000 })
    await sendRequest(stage, CHAT.body)
    const [money, tokens] = [await stage.store.spent('budget'), await stage.store.spent('tokens')]
    const replies = await sendConcurrently(20, () => sendRequest(stage, CHAT.body))

    expect(countByStatus(replies)).toEqual({ 429: 20 })
    expect([await stage.store.spent('budget'), await stage.store.spent('tokens')]).toEqual([money, tokens])
    expect(await stage.store.maxHeld()).toBe(0)
  })

  it('of 0 rejects every request', async () => {
    for (const key of [{ rate_limit_requests: 0 }, { rate_limit_tokens: 0 }]) {
      const stage = await startOne(key)
      for (const { path, body } of ENDPOINTS) expectErrorResponse(await sendRequest(stage, body, { path }), LIMITED)
      expect(stage.upstream.requests).toHaveLength(0)
    }
  })

  it('is reset with its window, also for a hundred requests across the boundary', async () => {
    const clock = { now: Date.UTC(2026, 0, 30, 12, 59, 59, 900) }
    const release = gate()
    const stage = await startOne(
      { rate_limit_requests: 100, budget_limit_cents: 10_000, budget_reset_duration: '1h' },
      { clock },
    )
    stage.upstream.reply = async (request) => {
      await release.opened
      return replyWithUsage(request, 100, 20)
    }
    const running = sendConcurrently(100, () => sendRequest(stage, CHAT.body))
    await stage.upstream.waitForRequest(100)
    expect((await sendRequest(stage, CHAT.body)).status).toBe(429)
    clock.now += 100
    const next = sendConcurrently(100, () => sendRequest(stage, CHAT.body))
    await stage.upstream.waitForRequest(200)
    expect((await sendRequest(stage, CHAT.body)).status).toBe(429)
    release.open()

    expect(countByStatus([...(await running), ...(await next)])).toEqual({ 200: 200 })
    await stage.store.waitUntilSettled()
    expect(await stage.store.maxHeld()).toBe(0)
    const usage = await stage.gateway.keys.usage(stage.keyId)
    expect(usage.requests).toBe(100)
  })

  it('is not reset by a clock that is set back', async () => {
    const clock = { now: NOON }
    const stage = await startOne({ rate_limit_requests: 2, rate_limit_reset_duration: '1h' }, { clock })
    await sendRequest(stage, CHAT.body)
    await sendRequest(stage, CHAT.body)
    for (const now of [NOON - 5_000, NOON + 5_000, NOON + 3_600_000, NOON]) {
      clock.now = now
      const expected = now === NOON + 3_600_000 ? 200 : 429
      expect((await sendRequest(stage, CHAT.body)).status).toBe(expected)
    }
  })

  it('per month is reset on the first day of the next month', async () => {
    const clock = { now: Date.UTC(2027, 0, 31, 23, 59, 59) }
    const stage = await startOne({ rate_limit_requests: 1, rate_limit_reset_duration: '1M' }, { clock })
    expect((await sendRequest(stage, CHAT.body)).headers['x-ratelimit-reset']).toBe(String(Date.UTC(2027, 1, 1) / 1000))
    clock.now += 1_000
    expect((await sendRequest(stage, CHAT.body)).headers['x-ratelimit-reset']).toBe(String(Date.UTC(2027, 2, 1) / 1000))
    expect((await sendRequest(stage, CHAT.body)).status).toBe(429)
  })
})

describe('a token limit', () => {
  it('rejects a burst whose prompts alone reach it', async () => {
    const stage = await startOne({ rate_limit_tokens: 1_000 })
    stage.upstream.reply = (request) => replyWithUsage(request, 250, 10)
    const content = 'The fox jumps over the lazy dog. '.repeat(35)
    const replies = await sendConcurrently(20, () =>
      sendRequest(stage, { ...CHAT.body, messages: [{ role: 'user', content }] }),
    )

    expect(countByStatus(replies)[200]).toBeLessThanOrEqual(4)
    expect(countByStatus(replies)[200]).toBeGreaterThan(0)
    for (const reply of replies.filter(({ status }) => status === 429)) {
      expectErrorResponse(reply, LIMITED)
      expect(reply.headers['x-ratelimit-limit']).toBe('1000')
    }
  })

  it('counts the actual usage of the answer', async () => {
    const stage = await startOne({ rate_limit_tokens: 1_000 })
    stage.upstream.reply = (request) => replyWithUsage(request, 600, 500)
    expect((await sendRequest(stage, { ...CHAT.body, messages: longQuestion(120) })).status).toBe(200)
    expect(await stage.store.spent('tokens')).toBe(1_100)
    expectErrorResponse(await sendRequest(stage, CHAT.body), LIMITED)
  })

  it('and a request limit are independent', async () => {
    const stage = await startOne({
      rate_limit_tokens: 100_000,
      rate_limit_requests: 5,
      rate_limit_reset_duration: '1d',
      token_reset_duration: '1h',
    })
    const reply = await sendRequest(stage, CHAT.body)
    expect(reply.headers).toMatchObject({ 'x-ratelimit-limit': '5', 'x-ratelimit-remaining': '4' })
    expect(await stage.store.spent('requests')).toBe(1)
    expect(await stage.store.spent('tokens')).toBeGreaterThan(5)
  })
})

describe('a budget', () => {
  const CENT = 10_000_000

  it.each([false, true])('is never exceeded by 200 concurrent requests, streams %s', async (stream) => {
    const stage = await startOne({ budget_limit_cents: 1 })
    stage.upstream.reply = (request) => replyWithUsage(request, 8, Number(request.body['max_tokens']))
    const replies = await sendConcurrently(200, (index) => {
      const endpoint = ENDPOINTS[index % 2] as Endpoint
      return sendRequest(stage, { ...endpoint.body, max_tokens: 400, stream }, { path: endpoint.path })
    })

    await stage.store.waitUntilSettled()
    expect(await stage.store.maxHeld()).toBe(0)
    expect(await stage.store.spent('budget')).toBeLessThanOrEqual(CENT)
    expect(await stage.store.spent('budget')).toBeGreaterThan(0.5 * CENT)
    for (const reply of replies.filter(({ status }) => status !== 200)) {
      expectErrorResponse(reply, EXCEEDED)
      expect(reply.headers['x-should-retry']).toBe('false')
    }
    expect(countByStatus(replies)[402]).toBeGreaterThan(0)
  })

  it('is spent completely by consecutive requests, and the last answers are shortened', async () => {
    const stage = await startOne({ budget_limit_cents: 1 })
    stage.upstream.reply = (request) => replyWithUsage(request, 8, Number(request.body['max_tokens']))
    let refused: ClientReply | undefined
    for (let count = 0; count < 30 && refused === undefined; count += 1) {
      const reply = await sendRequest(stage, { ...CHAT.body, max_tokens: 900 })
      if (reply.status !== 200) refused = reply
    }
    const limits = stage.upstream.requests.map((request) => Number(request.body['max_tokens']))

    expect(refused?.status).toBe(402)
    expect(limits[0]).toBe(900)
    expect(limits.at(-1)).toBeLessThan(900)
    expect(limits.at(-1)).toBeGreaterThanOrEqual(16)
    expect(await stage.store.spent('budget')).toBeLessThanOrEqual(CENT)
    expect(await stage.store.spent('budget')).toBeGreaterThan(0.95 * CENT)
  })

  it('reserves the maximum answer of the model if the request has no limit, and sends the granted limit', async () => {
    const stage = await startOne({ budget_limit_cents: 1 })
    stage.upstream.reply = async () => ({ kind: 'hang' })
    const { max_tokens: _, ...endless } = CHAT.body
    const controller = new AbortController()
    const running = Array.from({ length: 8 }, () => sendRequest(stage, endless, { signal: controller.signal }))
    const ended = Promise.allSettled(running)
    await stage.upstream.waitForRequest(3)
    const [first] = stage.store.reservationIds
    expect(first).toBeDefined()
    expect(await stage.store.maxHeld()).toBeGreaterThan(1000 * 2 * 1.5 * 1000)
    expect(await stage.store.maxHeld()).toBeLessThanOrEqual(CENT)
    controller.abort()
    await ended
    await stage.store.waitUntilSettled()

    expect(await stage.store.maxHeld()).toBe(0)
    // The callers disconnected during the upstream call, so each is billed for its short prompt.
    const { prompt, completion } = stage.store.dailyTotals()
    expect(completion).toBe(0)
    expect(await stage.store.spent('budget')).toBe(prompt * 1.5 * 1000)
  })

  it('reports its name and limit in a refusal, but not the spent amount', async () => {
    const stage = await startOne({ budget_limit_cents: 1 })
    stage.upstream.reply = (request) => replyWithUsage(request, 1234, 1000)
    while ((await sendRequest(stage, { ...CHAT.body, max_tokens: 1000 })).status === 200);
    const refused = await sendRequest(stage, { ...CHAT.body, max_tokens: 1000 })

    expectErrorResponse(refused, EXCEEDED)
    expect(refused.error['message']).toContain('The budget of this key')
    expect(refused.error['message']).toContain('$0.010000')
    expect(refused.text).not.toContain((await stage.store.spent('budget')).toString().slice(0, 4))
  })

  it('of 0 rejects every request at any price', async () => {
    for (const price of [
      { input: 1, output: 2 },
      { input: 0, output: 0 },
    ]) {
      const stage = await startOne({ budget_limit_cents: 0 })
      const own = await startOne(
        { budget_limit_cents: 0 },
        { providers: [openaiCompatible({ name: 'chat', baseUrl: stage.upstream.baseUrl, defaultPrice: price })] },
      )
      for (const stream of [false, true])
        expectErrorResponse(await sendRequest(own, { ...CHAT.body, stream }), EXCEEDED)
      expect(stage.upstream.requests).toHaveLength(0)
    }
  })

  it('is not charged by requests that are rejected or fail before an answer', async () => {
    const stage = await startOne({ budget_limit_cents: 100 })
    const replies: readonly Reply[] = [
      { kind: 'failure', status: 400 },
      { kind: 'failure', status: 500 },
      { kind: 'cut' },
      { kind: 'json', value: {} },
    ]
    for (const reply of replies) {
      stage.upstream.reply = () => reply
      for (const { path, body } of ENDPOINTS) {
        for (const stream of [false, true]) await sendRequest(stage, { ...body, stream }, { path })
      }
    }
    await stage.store.waitUntilSettled()
    expect(await stage.store.spent('budget')).toBe(0)
    expect(await stage.store.maxHeld()).toBe(0)
  })

  it('is charged for the part that was sent before the caller disconnected', async () => {
    const stage = await startOne({ budget_limit_cents: 100 })
    stage.upstream.reply = (request) => ({ kind: 'events', items: [...eventsUntilText(request.dialect), HANG] })
    const response = await fetch(`${stage.url}${CHAT.path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...CHAT.body, stream: true }),
    })
    await response.body?.getReader().cancel()
    await stage.upstream.last.aborted
    await stage.store.waitUntilSettled()

    expect(await stage.store.spent('budget')).toBeGreaterThan(0)
    expect(await stage.store.maxHeld()).toBe(0)
  })

  it('reserves the cost of the more expensive of two providers', async () => {
    const upstream = (await startOne({})).upstream
    const model = { id: 'large', contextWindowTokens: 200_000, maxOutputTokens: 1000 }
    const stage = await startOne(
      {
        budget_limit_cents: 1,
        provider_configs: [
          { provider: 'free', weight: 5 },
          { provider: 'paid', weight: 1 },
        ],
      },
      {
        providers: [
          openaiCompatible({
            name: 'free',
            baseUrl: `${upstream.url}/free`,
            models: [{ ...model, price: { input: 0, output: 0 } }],
          }),
          openaiCompatible({
            name: 'paid',
            baseUrl: `${upstream.url}/paid`,
            models: [{ ...model, price: { input: 10, output: 200 } }],
          }),
        ],
      },
    )
    upstream.reply = (request) =>
      request.path.startsWith('/free')
        ? { kind: 'failure', status: 500 }
        : replyWithUsage(request, 8, Number(request.body['max_tokens']))
    const reply = await sendRequest(stage, { ...CHAT.body, model: 'large', max_tokens: 1000 })

    expect(reply.status).toBe(200)
    expect(Number(upstream.last.body['max_tokens'])).toBeLessThan(40)
    expect(await stage.store.spent('budget')).toBeLessThanOrEqual(CENT)
  })
})

describe('the bill', () => {
  it.each(FORMAT_PAIRS)('in the headers keeps its equations ($name)', async ({ path, body }) => {
    const stage = await startOne({}, { margin: 1.37 })
    stage.upstream.reply = (request) => replyWithUsage(request, 12_345, 678)
    const { headers } = await sendRequest(stage, { ...body, messages: longQuestion(3_000) }, { path })
    const dollars = (name: string): number => {
      expect(headers[name]).toMatch(/^-?\$\d+\.\d{6}$/)
      return Number(String(headers[name]).replace('$', ''))
    }

    expect(dollars('x-svc-theoretical-cost')).toBeCloseTo(12_345e-6 + 2 * 678e-6, 6)
    expect(dollars('x-svc-billed-amount')).toBeCloseTo(dollars('x-svc-theoretical-cost') * 1.37, 5)
    expect(dollars('x-svc-savings-usd')).toBeCloseTo(
      dollars('x-svc-theoretical-cost') - dollars('x-svc-actual-cost'),
      6,
    )
    expect(headers['x-svc-profit-margin']).toBe('1.37x')
    expect(stage.store.dailyTotals().billed).toBe(Math.round((12_345_000 + 2 * 678_000) * 1.37))
  })

  it.each<[string, () => number]>([
    ['NaN', () => Number.NaN],
    ['Infinity', () => Number.POSITIVE_INFINITY],
    ['negative', () => -1],
    ['not a number', () => '2' as unknown as number],
    [
      'an error',
      () => {
        throw new Error('sk-margin-secret')
      },
    ],
  ])('with a margin that is %s is an internal error without an upstream call', async (_, margin) => {
    const stage = await startOne({ budget_limit_cents: 100 }, { margin })
    for (const stream of [false, true]) {
      const reply = await sendRequest(stage, { ...CHAT.body, stream })
      expectErrorResponse(reply, { status: 500, type: 'api_error' })
      expect(reply.text).not.toContain('sk-margin')
    }
    expect(stage.upstream.requests).toHaveLength(0)
    expect(await stage.store.maxHeld()).toBe(0)
  })

  it('is never 0 for a model without a price: such a model is not listed', async () => {
    const stage = await startOne({})
    expectErrorResponse(await sendRequest(stage, { ...CHAT.body, model: 'chat/unpriced' }), {
      status: 404,
      type: 'invalid_request_error',
    })
    expect(() => openaiCompatible({ name: 'open', baseUrl: 'http://127.0.0.1:1' })).toThrow('defaultPrice')
  })
})

describe('a key that is deleted or disabled under load', () => {
  it.each(['delete', 'switch off'])(
    '(%s) is refused immediately, and running requests are answered and billed',
    async (how) => {
      const stage = await startOne({ budget_limit_cents: 1_000 })
      const release = gate()
      stage.upstream.reply = async (request) => {
        await release.opened
        return replyWithUsage(request, 100, 20)
      }
      const running = sendConcurrently(20, (index) => sendRequest(stage, { ...CHAT.body, stream: index % 2 === 0 }))
      await stage.upstream.waitForRequest(20)
      if (how === 'delete') await stage.gateway.keys.delete(stage.keyId)
      else await stage.gateway.keys.update(stage.keyId, { is_active: false })
      const after = await sendConcurrently(20, () => sendRequest(stage, CHAT.body))
      release.open()

      expect(countByStatus(after)).toEqual({ 401: 20 })
      expect(countByStatus(await running)).toEqual({ 200: 20 })
      await stage.store.waitUntilSettled()
      expect(await stage.store.maxHeld()).toBe(0)
      expect(await stage.store.spent('budget')).toBe(20 * 1.5 * (100 + 40) * 1000)
    },
  )
})
