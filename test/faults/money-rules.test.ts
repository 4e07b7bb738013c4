import { createHash } from 'node:crypto'
import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible } from '../../src/index.ts'
import { CHAT, ENDPOINTS, MESSAGE, sendRequest } from '../support/send-request.ts'
import { PRICE, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { buildEvents, CUT, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

interface RecordedStage extends Stage {
  readonly store: RecordingStore
}

interface HeldOptions {
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  /** Of the key's budget. */
  readonly cents?: number
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function start(options: StageOptions = {}): Promise<RecordedStage> {
  const store = recordingStore()
  const stage = await startStage({ store, margin: 1, ...options })
  stages.push(stage)
  return { ...stage, store }
}

describe('a token limit', () => {
  it.each(ENDPOINTS)('is not charged for a cache hit of the $name endpoint', async ({ body, path }) => {
    const stage = await start({
      cache: {},
      key: { name: 'limited', rate_limit_tokens: 100_000, token_reset_duration: '1M' },
      reply: () => 'A stored answer of several words, which costs tokens.',
    })
    const remaining = async (): Promise<number> => (await stage.gateway.keys.limits(stage.keyId)).remainingTokens
    await sendRequest(stage, body, { path })
    await stage.store.waitUntilSettled()
    const afterMiss = await remaining()
    const hit = await sendRequest(stage, body, { path })
    await stage.store.waitUntilSettled()

    expect(hit.headers['x-svc-cache']).toBe('HIT')
    expect(afterMiss).toBeLessThan(100_000)
    expect(await remaining()).toBe(afterMiss)
  })
})

describe('partial output', () => {
  /** Thousands of tokens and no usage, although the request allows 20 tokens. */
  const cutStream = (request: UpstreamRequest): Reply => ({
    kind: 'events',
    items: [...buildEvents(request, { text: 'more words than were asked for '.repeat(500) }).slice(0, -3), CUT],
  })

  it.each(ENDPOINTS)('of the $name endpoint is billed at most up to the granted limit', async ({ body, path }) => {
    const stage = await start({ reply: cutStream })
    await sendRequest(stage, { ...body, stream: true }, { path })
    await stage.store.waitUntilSettled()

    expect(stage.store.dailyTotals().completion).toBe(20)
  })

  it('of several choices is billed at most up to the granted limit of each', async () => {
    const stage = await start({ reply: cutStream })
    await sendRequest(stage, { ...CHAT.body, n: 4, stream: true })
    await stage.store.waitUntilSettled()

    expect(stage.store.dailyTotals().completion).toBe(4 * 20)
  })

  it('is counted, and not billed by a usage that the vendor reported before it', async () => {
    const usage = { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 }
    const early = { data: JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [], usage }) }
    const stage = await start({
      reply: (request) => {
        const [first = early, ...others] = buildEvents(request, { text: 'more words than asked for '.repeat(500) })
        return { kind: 'events', items: [first, early, ...others.slice(0, -3), CUT] }
      },
    })
    await sendRequest(stage, { ...CHAT.body, stream: true })
    await stage.store.waitUntilSettled()

    expect(stage.store.dailyTotals()).toMatchObject({ prompt: 10, completion: 20 })
  })

  it('is billed up to the lower limit that the budget covers', async () => {
    const stage = await start({ reply: cutStream, key: { name: 'poor', budget_limit_cents: 1 } })
    // 1 cent pays for 5,000 output tokens, less than the 20,000 that are asked for.
    await sendRequest(stage, { ...CHAT.body, max_tokens: 1000, n: 20, stream: true })
    await stage.store.waitUntilSettled()

    const { billed, completion } = stage.store.dailyTotals()
    const granted = Number(stage.upstream.last.body['max_tokens'])
    expect(granted).toBeLessThan(250)
    expect(completion).toBeLessThanOrEqual(granted * 20)
    expect(billed).toBeLessThanOrEqual(10_000_000)
  })
})

describe('the beta of a million tokens of context', () => {
  const models = (contextWindowTokens: number) => [
    { id: 'large', price: PRICE, contextWindowTokens, maxOutputTokens: 1000 },
  ]
  const betaOf = async (windows: readonly number[]): Promise<string | undefined> => {
    const probe = await start()
    const { url } = probe.upstream
    const stage = await start({
      providers: windows.map((window, index) =>
        anthropic({ name: `vendor-${index}`, baseUrl: url, apiKey: 'sk-upstream', models: models(window) }),
      ),
    })
    const headers = { 'anthropic-beta': 'context-1m-2025-08-07' }
    const reply = await sendRequest(stage, { ...MESSAGE.body, model: 'large' }, { path: MESSAGE.path, headers })
    expect(reply.status).toBe(200)
    return probe.upstream.last.headers['anthropic-beta']
  }

  it('is forwarded if each candidate has the window', async () => {
    expect(await betaOf([1_000_000, 1_000_000])).toBe('context-1m-2025-08-07')
  })

  it('is dropped if a fallback has a smaller window', async () => {
    expect(await betaOf([1_000_000, 200_000])).toBeUndefined()
  })
})

describe('a prompt above the context window', () => {
  // 30,000 numbers, which have at least 30,000 tokens.
  const content = Array.from({ length: 30_000 }, (_, at) => `${at % 10}`).join(' ')

  it('reserves its own size and not that of the window', async () => {
    const small = { id: 'large', price: PRICE, contextWindowTokens: 10_000, maxOutputTokens: 1000 }
    const probe = await start()
    const stage = await start({
      providers: [openaiCompatible({ name: 'chat', baseUrl: probe.upstream.baseUrl, models: [small] })],
      // Covers the window of 10,000 tokens at 1,000 nano-dollars, and not the prompt.
      key: { name: 'limited', budget_limit_cents: 2 },
    })
    const reply = await sendRequest(stage, { ...CHAT.body, messages: [{ role: 'user', content }] })

    expect([reply.status, probe.upstream.requests.length]).toEqual([402, 0])
  })
})

describe('the reservation', () => {
  /** Returns the amount that the budget holds while the upstream answers. */
  async function heldDuring(
    body: JsonObject,
    { path, headers = {}, cents = 100, ...options }: StageOptions & HeldOptions,
  ): Promise<{ readonly held: number; readonly stage: RecordedStage }> {
    let held = 0
    const { reply = () => 'Yes.', ...others } = options
    const stage = await start({
      key: { name: 'limited', budget_limit_cents: cents },
      reply: async (request) => {
        if (!request.path.includes('count_tokens')) held = await stage.store.maxHeld()
        return reply(request)
      },
      ...others,
    })
    const { status, text } = await sendRequest(stage, body, { path, headers })
    expect(status, text).toBe(200)
    await stage.store.waitUntilSettled()
    return { held, stage }
  }

  it('covers the output of a prediction that the vendor rejects', async () => {
    const prediction = { type: 'content', content: 'word '.repeat(1000) }
    const { held } = await heldDuring({ ...CHAT.body, prediction }, { path: CHAT.path })

    // 5,000 bytes as input at 1,000 nano-dollars and as output at 2,000.
    expect(held).toBeGreaterThan(5000 * (1000 + 2000))
  })

  it('covers the window twice if the vendor reads other content and then compacts it', async () => {
    const search = { type: 'web_search_20250305', name: 'web_search' }
    const context_management = { edits: [{ type: 'compact_20260112' }] }
    const once = await heldDuring({ ...MESSAGE.body, tools: [search] }, { path: MESSAGE.path })
    const twice = await heldDuring({ ...MESSAGE.body, tools: [search], context_management }, { path: MESSAGE.path })

    expect(once.held).toBeGreaterThanOrEqual(200_000 * 1000)
    expect(twice.held).toBeGreaterThanOrEqual(2 * 200_000 * 1000)
  })

  it('covers the tokens by which the usage of a vendor exceeds its own count', async () => {
    const counted = 9900
    const content = '1234567890'.repeat(counted / 5)
    const usage = { input_tokens: counted + 16, output_tokens: 16 }
    const { held, stage } = await heldDuring(
      { model: MESSAGE.model, max_tokens: 16, messages: [{ role: 'user', content }] },
      {
        path: MESSAGE.path,
        cents: 1,
        reply: ({ path }) =>
          path.includes('count_tokens') ? { kind: 'json', value: { input_tokens: counted } } : { text: 'Yes.', usage },
      },
    )

    expect(stage.store.dailyTotals().billed).toBe((counted + 16) * 1000 + 16 * 2000)
    expect(held).toBeGreaterThanOrEqual(stage.store.dailyTotals().billed)
  })
})

describe('an explanation', () => {
  it('does not let the vendor count a prompt, although the budget may cover it', async () => {
    const stage = await start({ key: { name: 'limited', budget_limit_cents: 1 } })
    const body = { ...MESSAGE.body, messages: [{ role: 'user', content: '1234567890'.repeat(1800) }] }
    const { status } = await sendRequest(stage, body, { path: MESSAGE.path, headers: { 'x-svc-explain': 'true' } })

    expect([status, stage.upstream.requests.length]).toEqual([200, 0])
  })
})

describe('a fallback', () => {
  it('is asked for no more output than its own model has', async () => {
    const probe = await start({
      reply: ({ dialect }) => (dialect === 'chat' ? { kind: 'failure', status: 500 } : 'Yes.'),
    })
    const { url, baseUrl } = probe.upstream
    const modelOf = (maxOutputTokens: number) => [
      { id: 'large', price: PRICE, contextWindowTokens: 200_000, maxOutputTokens },
    ]
    const stage = await start({
      providers: [
        openaiCompatible({ name: 'first', baseUrl, models: modelOf(1000) }),
        anthropic({ name: 'second', baseUrl: url, apiKey: 'sk-upstream', models: modelOf(100) }),
      ],
    })
    const reply = await sendRequest(stage, { model: 'large', messages: CHAT.body['messages'] ?? [] })

    expect(reply.status).toBe(200)
    expect(probe.upstream.last.dialect).toBe('messages')
    expect(probe.upstream.last.body['max_tokens']).toBe(100)
  })
})

describe('a secret', () => {
  it('opens no key with another hash, whatever the store says', async () => {
    const stage = await start()
    const secret = 'sk-bf-00000000-0000-4000-8000-000000000000'
    await stage.store.set(`key-hash:${createHash('sha256').update(secret).digest('hex')}`, stage.keyId)

    expect((await sendRequest(stage, CHAT.body, { secret })).status).toBe(401)
  })
})
