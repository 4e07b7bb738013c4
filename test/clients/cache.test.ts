import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryResponseStore } from '../../src/plugins/cache/response-store.ts'
import { smallModelVerifier } from '../../src/plugins/cache/cache-options.ts'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { gate } from '../support/upstream.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage({ cache: {}, ...options })
  stages.push(started)
  return started
}

const ask = (text: string) => ({
  model: CHAT_MODEL,
  max_tokens: 60,
  messages: [{ role: 'user' as const, content: text }],
})

describe('tier 1 over a real port', () => {
  it.each([
    [true, false],
    [false, true],
    [true, true],
  ])('loses no citation and no log probability (stream: %s, then %s)', async (...streams) => {
    const annotations = [{ type: 'url_citation', url_citation: { url: 'https://a.test', title: 'A' } }]
    const logprobs = { content: [{ token: 'A', logprob: -0.5, bytes: null, top_logprobs: [] }], refusal: null }
    const choice = (field: 'delta' | 'message') => ({
      id: 'chatcmpl-1',
      object: 'chat.completion',
      created: 1,
      model: 'large',
      choices: [{ index: 0, [field]: { content: 'A', annotations }, logprobs, finish_reason: 'stop' }],
    })
    const { openai, upstream } = await stage({
      reply: ({ stream }) =>
        stream
          ? { kind: 'events', items: [{ data: JSON.stringify(choice('delta')) }, { data: '[DONE]' }] }
          : { kind: 'json', value: choice('message') },
    })

    for (const body of [ask('What is a sluice?'), { ...ask('What is a weir?'), logprobs: true }]) {
      for (const stream of streams) {
        const response = await openai.chat.completions.create({ ...body, stream }).asResponse()
        const text = await response.text()
        expect(text).toContain('https://a.test')
        expect(text).toContain('-0.5')
      }
    }
    expect(upstream.requests).toHaveLength(4)
  })

  it.each([false, true])(
    'stores no answer that the vendor interrupted or that refers to sources (stream: %s)',
    async (stream) => {
      const endings = [
        { finish_reason: 'insufficient_system_resource', sources: {} },
        { finish_reason: 'sensitive', sources: {} },
        { finish_reason: 'stop', sources: { citations: ['https://a.test'] } },
      ]
      let ending = endings[0]
      const { openai, upstream } = await stage({
        reply: (request) => {
          const message = { [request.stream ? 'delta' : 'message']: { role: 'assistant', content: 'Yes [1]' } }
          const { finish_reason = 'stop', sources = {} } = ending ?? {}
          const value = { id: 'c', model: 'large', choices: [{ index: 0, ...message, finish_reason }], ...sources }
          return request.stream
            ? { kind: 'events', items: [{ data: JSON.stringify(value) }, { data: '[DONE]' }] }
            : { kind: 'json', value }
        },
      })

      for (ending of endings) {
        const body = { ...ask(`What is ${JSON.stringify(ending)}?`), stream }
        await (await openai.chat.completions.create(body).asResponse()).text()
        await (await openai.chat.completions.create(body).asResponse()).text()
      }
      expect(upstream.requests).toHaveLength(2 * endings.length)
    },
  )

  it('does not answer a request with other beta headers', async () => {
    const { anthropic, upstream } = await stage()
    const body = { model: MESSAGE_MODEL, max_tokens: 60, messages: ask('What is a sluice?').messages }
    await anthropic.messages.create(body)
    await anthropic.messages.create(body, { headers: { 'anthropic-beta': 'context-1m-2025-08-07' } })
    await anthropic.messages.create(body)

    expect(upstream.requests).toHaveLength(2)
  })

  it('distinguishes versions of the API, but not the default version and none', async () => {
    const { anthropic, url, secret, upstream } = await stage()
    const body = { model: MESSAGE_MODEL, max_tokens: 60, messages: ask('What is a sluice?').messages }
    const version = { 'anthropic-version': '2023-06-01' }
    await anthropic.messages.create(body, { headers: version })
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }
    const response = await fetch(`${url}/v1/messages`, { method: 'POST', headers, body: JSON.stringify(body) })
    expect(response.headers.get('x-svc-cache')).toBe('HIT')
    await anthropic.messages.create(body, { headers: { 'anthropic-version': '2026-10-21' } })

    expect(upstream.requests).toHaveLength(2)
  })

  it('ignores headers that the provider does not forward', async () => {
    const { anthropic, upstream } = await stage()
    const body = { model: CHAT_MODEL, max_tokens: 60, messages: ask('What is a sluice?').messages }
    await anthropic.messages.create(body, { headers: { 'anthropic-beta': 'a' } })
    await anthropic.messages.create(body)

    expect(upstream.requests).toHaveLength(1)
  })

  it('keeps the answers to prompts that a header may shorten apart', async () => {
    const { url, secret } = await stage()
    const send = async (headers: Readonly<Record<string, string>>): Promise<string | null> => {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...headers },
        body: JSON.stringify(ask('What is a sluice?')),
      })
      await response.text()
      return response.headers.get('x-svc-cache')
    }
    const ways = [
      { 'x-savings-level': 'extreme' },
      { 'x-savings-level': 'off' },
      { 'x-vanishing-context': 'true' },
      { 'x-svc-rlm': 'true' },
      {},
    ]

    for (const headers of ways) expect(await send(headers)).toBe('MISS')
    for (const headers of ways) expect(await send(headers)).toBe('HIT')
    expect(await send({ 'x-savings-level': ' Extreme', 'x-vanishing-context': 'false' })).toBe('HIT')
  })

  it('answers a repeated question from memory, without an upstream call and free of charge', async () => {
    const { openai, upstream } = await stage()
    const first = await openai.chat.completions.create(ask('What is a sluice?')).withResponse()

    const second = await openai.chat.completions.create(ask(' What is a sluice?\n')).withResponse()

    expect(upstream.requests).toHaveLength(1)
    expect(second.data.choices).toEqual(first.data.choices)
    expect(Object.fromEntries(second.response.headers)).toMatchObject({
      'x-svc-cache': 'HIT',
      'x-svc-strategy': 'Semantic-Cache',
      'x-svc-billed-amount': '$0.000000',
      'x-svc-actual-cost': '$0.000000',
      'x-svc-theoretical-cost': first.response.headers.get('x-svc-theoretical-cost'),
      'x-svc-reduction-pct': '100%',
    })
  })

  it('compares similar wordings below a system prompt only for a key, an alias or a caller that asks for it', async () => {
    const system = { role: 'system' as const, content: 'Be brief.' }
    const turn = (text: string, model: string = CHAT_MODEL) => {
      const body = ask(text)
      return { ...body, model, messages: [system, ...body.messages] }
    }
    const catalog = { aliases: [{ id: 'lenient', target: CHAT_MODEL, cacheSimilar: true }] }
    const hit = async (
      { openai }: Stage,
      { model = CHAT_MODEL, headers = {} }: { model?: string; headers?: Record<string, string> } = {},
    ): Promise<string | null> => {
      await openai.chat.completions.create(turn('what is a sluice?', model), { headers })
      const { response } = await openai.chat.completions
        .create(turn("what's a sluice?", model), { headers })
        .withResponse()
      return response.headers.get('x-svc-cache')
    }
    const plain = await stage({ catalog })
    const lenientKey = await stage({ key: { name: 'lenient', cacheSimilar: true } })

    expect(await hit(plain)).toBe('MISS')
    expect(await hit(plain, { model: 'lenient' })).toBe('HIT')
    expect(await hit(lenientKey)).toBe('HIT')
    expect(await hit(await stage(), { headers: { 'x-svc-cache-threshold': '0.9' } })).toBe('HIT')
    expect(await hit(await stage({ cache: { similar: true } }))).toBe('HIT')
  })

  it.each([CHAT_MODEL, MESSAGE_MODEL])(
    'answers on either endpoint, as JSON or as a stream, what was stored from the other: %s',
    async (model) => {
      const { openai, anthropic, upstream } = await stage({ reply: () => ({ text: ['A gate', ' for water.'] }) })
      const question = [{ role: 'user' as const, content: 'What is a sluice?' }]
      // The default version of the gateway. The client's is newer.
      const options = { headers: { 'anthropic-version': '2023-06-01' } }
      await openai.chat.completions.create({ model, max_tokens: 60, messages: question })

      const message = await anthropic.messages.create({ model, max_tokens: 60, messages: question }, options)
      const streamed = await anthropic.messages

        .stream({ model, max_tokens: 60, messages: question }, options)
        .finalMessage()
      const chunks = await openai.chat.completions.stream({ model, max_tokens: 60, messages: question }).finalContent()

      expect(message.content).toMatchObject([{ type: 'text', text: 'A gate for water.' }])
      expect(streamed.content).toMatchObject([{ type: 'text', text: 'A gate for water.' }])
      expect(chunks).toBe('A gate for water.')
      expect(upstream.requests).toHaveLength(1)
    },
  )

  it('calls the upstream once for concurrent identical requests', async () => {
    const opened = gate()
    const { openai, upstream } = await stage({ reply: async () => (await opened.opened, 'Once.') })

    const asked = Array.from({ length: 5 }, () => openai.chat.completions.create(ask('The same?')).withResponse())
    await upstream.waitForRequest(1)
    opened.open()
    const responses = await Promise.all(asked)

    expect(upstream.requests).toHaveLength(1)
    expect(responses.map(({ data }) => data.choices[0]?.message.content)).toEqual(Array(5).fill('Once.'))
    expect(responses.map(({ response }) => response.headers.get('x-svc-cache')).toSorted()).toEqual([
      'HIT',
      'HIT',
      'HIT',
      'HIT',
      'MISS',
    ])
  })

  it('calls the upstream again when the first caller disconnects', async () => {
    const opened = gate()
    const { openai, upstream } = await stage({ reply: async () => (await opened.opened, 'Twice.') })
    const leaver = new AbortController()

    const first = openai.chat.completions.create(ask('The same?'), { signal: leaver.signal }).catch(() => 'left')
    await upstream.waitForRequest(1)
    const second = openai.chat.completions.create(ask('The same?'))
    leaver.abort()
    await upstream.waitForRequest(2)
    opened.open()

    expect(await first).toBe('left')
    expect((await second).choices[0]?.message.content).toBe('Twice.')
  })

  it('separates the answers of different keys', async () => {
    const { openai, gateway, upstream, url } = await stage()
    await openai.chat.completions.create(ask('What is a sluice?'))
    const other = await gateway.keys.create({ name: 'other' })

    await openai
      .withOptions({ apiKey: other.value, baseURL: `${url}/v1` })
      .chat.completions.create(ask('What is a sluice?'))

    expect(upstream.requests).toHaveLength(2)
  })

  it.each([
    ['no-store', 2],
    ['no-cache', 2],
  ])('calls the upstream with Cache-Control: %s', async (directive, calls) => {
    const { openai, upstream } = await stage()
    await openai.chat.completions.create(ask('What is a sluice?'))

    await openai.chat.completions.create(ask('What is a sluice?'), { headers: { 'cache-control': directive } })

    expect(upstream.requests).toHaveLength(calls)
  })

  it('deletes cleared answers', async () => {
    const { openai, gateway, upstream, keyId } = await stage()
    await openai.chat.completions.create(ask('What is a sluice?'))

    await gateway.cache.clear({ keyId })
    await openai.chat.completions.create(ask('What is a sluice?'))

    expect(upstream.requests).toHaveLength(2)
  })

  it('deletes answers that another gateway has stored, before its own first request', async () => {
    const responses = createMemoryResponseStore({
      maxEntries: 10,
      maxBytes: 1e6,
      indexBytes: () => 0,
      onRemove: () => {},
    })
    const cache = { responses, scope: 'global' } as const
    const [first, second] = [await stage({ cache }), await stage({ cache })]
    await first.openai.chat.completions.create(ask('What is a sluice?'))

    await second.gateway.cache.clear()
    await second.openai.chat.completions.create(ask('What is a sluice?'))

    expect(second.upstream.requests).toHaveLength(1)
  })
})

describe('a small model as the verifier of the cache', () => {
  const vector = Float32Array.of(1, 0)
  const options = {
    cache: {
      embedder: { name: 'constant', dimensions: 2, embed: (texts: readonly string[]) => texts.map(() => vector) },
      verifyHit: smallModelVerifier(),
    },
    reply: () => 'YES',
  }

  it('accepts a paraphrase as a hit, and adds its call to the actual cost without billing it', async () => {
    const { gateway, openai, upstream } = await stage(options)
    await openai.chat.completions.create(ask('What is the capital of France?'))
    const paraphrase = ask('Which city is the seat of government in France?')
    const { response } = await openai.chat.completions.create(paraphrase).withResponse()

    expect(upstream.requests.map(({ body }) => body['model'])).toEqual(['large', 'small'])
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'x-svc-cache': 'HIT',
      'x-svc-billed-amount': '$0.000000',
    })
    expect(response.headers.get('x-svc-actual-cost')).not.toBe('$0.000000')

    await gateway.cache.reportWrongHit(response.headers.get('x-request-id') ?? '')
    const again = await openai.chat.completions.create(paraphrase).withResponse()

    expect(again.response.headers.get('x-svc-cache')).toBe('MISS')
  })

  it('adds the cost of a refusal to the actual cost of the request', async () => {
    const plain = await stage({ ...options, cache: { embedder: options.cache.embedder }, reply: () => 'No.' })
    const verified = await stage({ ...options, reply: () => 'No.' })
    const costs = await Promise.all(
      [plain, verified].map(async ({ openai }) => {
        await openai.chat.completions.create(ask('What is the capital of France?'))
        const { response } = await openai.chat.completions
          .create(ask('Which city is the seat of government in France?'))
          .withResponse()
        return [response.headers.get('x-svc-actual-cost'), response.headers.get('x-svc-billed-amount')]
      }),
    )

    expect(costs[1]?.[0]).not.toBe(costs[0]?.[0])
    expect(costs[1]?.[1]).toBe(costs[0]?.[1])
  })

  it('calls the upstream when the small model fails or does not answer in time', async () => {
    const never = gate()
    for (const small of [() => ({ kind: 'failure', status: 500 }) as const, async () => (await never.opened, 'YES')]) {
      const { openai } = await stage({
        cache: { ...options.cache, timeoutMs: 20 },
        reply: ({ body }) => (body['model'] === 'small' ? small() : 'Paris'),
      })
      await openai.chat.completions.create(ask('What is the capital of France?'))
      const { data, response } = await openai.chat.completions
        .create(ask('Which city is the seat of government in France?'))
        .withResponse()

      expect(response.headers.get('x-svc-cache')).toBe('MISS')
      expect(data.choices[0]?.message.content).toBe('Paris')
    }
    never.open()
  })
})
