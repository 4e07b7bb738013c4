import { afterEach, describe, expect, it } from 'vitest'
import { anthropic, openaiCompatible } from '../../src/index.ts'
import { CHAT, ENDPOINTS, MESSAGE, sendRequest } from '../support/send-request.ts'
import { PRICE, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { buildEvents, CUT, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

interface RecordedStage extends Stage {
  readonly store: RecordingStore
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
