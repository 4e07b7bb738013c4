import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { ClosableTransport, Provider } from '../../src/core/ports.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { undiciTransport } from '../../src/http/transport-undici.ts'
import { anthropic, openai, openaiCompatible } from '../../src/providers/main-providers.ts'
import { manualRuntime, type ManualRuntime } from '../support/manual-runtime.ts'
import { collectChunks, failureOf, providerCall, textOf, textOfCompletion } from '../support/provider-call.ts'
import { CUT, buildEvents, startUpstream, type Upstream } from '../support/upstream.ts'

let upstream: Upstream
let transport: ClosableTransport
let runtime: ManualRuntime

beforeEach(async () => {
  upstream = await startUpstream()
  transport = undiciTransport()
  runtime = manualRuntime(transport)
})

afterEach(async () => {
  await transport.close()
  await upstream.close()
})

const chat = (body: JsonObject = {}): Prompt =>
  chatClient.readPrompt({ model: 'x/y', messages: [{ role: 'user', content: 'Hello?' }], ...body })
const message = (body: JsonObject = {}): Prompt =>
  messagesClient.readPrompt({ model: 'y', max_tokens: 50, messages: [{ role: 'user', content: 'Hello?' }], ...body })

const vendors = [
  ['openai', 'gpt-4o-mini', (): Provider => openai({ apiKey: 'sk-test-openai-key', baseUrl: upstream.baseUrl })],
  ['anthropic', 'claude-sonnet-5-5', (): Provider => anthropic({ apiKey: 'sk-ant-test-key', baseUrl: upstream.url })],
] as const

describe.each(vendors)('the provider %s', (name, id, create) => {
  const call = (prompt: Prompt): Parameters<Provider['complete']>[0] => {
    const model = create().model(id)
    if (model === undefined) throw new Error(`no model ${id}`)
    return providerCall(prompt, runtime, { model })
  }

  it.each([
    ['chat', chat],
    ['message', message],
  ])('returns the same answer to a %s prompt with and without a stream', async (_format, prompt) => {
    upstream.reply = () => ({ text: 'Grüße aus dem Norden.', toolCalls: [{ name: 'look', input: '{"at":"sky"}' }] })
    const whole = (await create().complete(call(prompt()))).response
    const chunks = await collectChunks((await create().stream(call(prompt({ stream: true })))).response)
    expect(textOfCompletion({ ...whole, parts: whole.parts.slice(0, 1) })).toBe('Grüße aus dem Norden.')
    expect(whole.parts[1]).toMatchObject({ type: 'tool-call', name: 'look', input: '{"at":"sky"}' })
    expect(textOf(chunks)).toBe('Grüße aus dem Norden.')
    expect(chunks.flatMap((chunk) => chunk.parts).at(-1)).toEqual({ type: 'done' })
    expect(whole.usage?.outputTokens).toBeGreaterThan(0)
    expect(upstream.requests.map((request) => [request.stream, request.body['model']])).toEqual([
      [false, id],
      [true, id],
    ])
    expect(upstream.last.dialect).toBe(name === 'openai' ? 'chat' : 'messages')
  })

  it('throws upstream for a stream that ends or breaks without its last event', async () => {
    for (const end of [[], [CUT]] as const) {
      upstream.reply = (request) => ({
        kind: 'events',
        items: [...buildEvents(request, { text: 'some words that are cut' }).slice(0, 4), ...end],
      })
      const failure = await failureOf(collectChunks((await create().stream(call(chat({ stream: true })))).response))
      expect(failure.kind).toBe('upstream')
    }
  })

  it.each([
    [400, 'upstream-rejected'],
    [404, 'upstream-rejected'],
    [401, 'upstream'],
    [403, 'upstream'],
    [429, 'upstream-rate-limited'],
    [500, 'upstream'],
    [502, 'upstream'],
    [503, 'overloaded'],
    [529, 'overloaded'],
  ])('maps status %i to %s, also for a stream', async (status, kind) => {
    upstream.reply = () => ({ kind: 'failure', status, headers: { 'retry-after': '3' } })
    for (const failure of [
      await failureOf(create().complete(call(chat()))),
      await failureOf(create().stream(call(chat({ stream: true })))),
    ]) {
      expect(failure.kind).toBe(kind)
      expect(failure.details).toMatchObject({ advice: { retryAfter: '3' }, retryAfterSeconds: 3 })
    }
  })

  it('uses a custom fetch', async () => {
    const seen: string[] = []
    const fetch: typeof globalThis.fetch = (url, init) => {
      seen.push(String(url))
      return globalThis.fetch(url, init)
    }
    const options = { apiKey: 'sk-test-key', fetch, baseUrl: name === 'openai' ? upstream.baseUrl : upstream.url }
    const provider = name === 'openai' ? openai(options) : anthropic(options)
    expect(textOfCompletion((await provider.complete(call(chat()))).response)).toBe('Hello from upstream.')
    expect(seen).toEqual([`${upstream.baseUrl}${name === 'openai' ? '/chat/completions' : '/messages'}`])
  })
})

describe('openai', () => {
  it('sends its key as a bearer token for any model id, to a URL with or without a trailing slash', async () => {
    const provider = openai({
      apiKey: 'sk-test-key',
      baseUrl: `${upstream.baseUrl}/`,
      defaultPrice: { input: 1, output: 1 },
    })
    const model = provider.model('../../admin?x=1#y')
    if (model === undefined) throw new Error('the default price makes any id a model')
    const headers = { 'anthropic-beta': 'x' }
    await provider.complete(providerCall(chat(), runtime, { model, headers }))
    expect(upstream.last).toMatchObject({ path: '/v1/chat/completions', body: { model: '../../admin?x=1#y' } })
    expect(upstream.last.headers['authorization']).toBe('Bearer sk-test-key')
    expect(upstream.last.headers).not.toHaveProperty('anthropic-beta')
  })

  it('accepts a stream without [DONE] after the finish reason', async () => {
    const provider = openai({ apiKey: 'sk-test-key', baseUrl: upstream.baseUrl })
    const model = provider.model('gpt-4o')
    if (model === undefined) throw new Error('gpt-4o is in the catalogue')
    upstream.reply = (request) => ({ kind: 'events', items: buildEvents(request, { text: 'all of it' }).slice(0, -1) })
    const chunks = await collectChunks(
      (await provider.stream(providerCall(chat({ stream: true }), runtime, { model }))).response,
    )
    expect(textOf(chunks)).toBe('all of it')
    expect(chunks.at(-1)).toEqual({ parts: [{ type: 'done' }] })
  })
})

describe('anthropic', () => {
  const call = (prompt: Prompt, headers: Record<string, string> = {}): Parameters<Provider['complete']>[0] => {
    const model = anthropic({ apiKey: 'x' }).model('claude-haiku-4-5')
    if (model === undefined) throw new Error('the alias of a dated model is known')
    return providerCall(prompt, runtime, { model, headers })
  }

  it('sends its key as x-api-key, and the version of the caller or the default version', async () => {
    const provider = anthropic({ apiKey: 'sk-ant-test', baseUrl: upstream.baseUrl })
    await provider.complete(call(message()))
    expect(upstream.last.path).toBe('/v1/messages')
    expect(upstream.last.headers).toMatchObject({ 'x-api-key': 'sk-ant-test', 'anthropic-version': '2023-06-01' })
    expect(upstream.last.headers).not.toHaveProperty('authorization')
    await provider.complete(
      call(message(), { 'anthropic-version': '2026-10-21', 'anthropic-beta': 'a,b', cookie: 'c' }),
    )
    expect(upstream.last.headers).toMatchObject({ 'anthropic-version': '2026-10-21', 'anthropic-beta': 'a,b' })
    expect(upstream.last.headers).not.toHaveProperty('cookie')
  })

  it('requests a token count with only the fields of the prompt', async () => {
    const provider = anthropic({ apiKey: 'sk-ant-test', baseUrl: upstream.url })
    const tools = [{ name: 'look', input_schema: { type: 'object' } }]
    expect(await provider.countTokens?.(call(message({ system: 'Be short.', tools, temperature: 0.5 })))).toBe(11)
    expect(upstream.last.path).toBe('/v1/messages/count_tokens')
    expect(upstream.last.body).toEqual({
      model: 'claude-haiku-4-5',
      system: 'Be short.',
      messages: [{ role: 'user', content: 'Hello?' }],
      tools,
    })
  })
})

describe('openaiCompatible', () => {
  it.each(['k3y!', 'lm-key', 'sk-a-longer-key'])('does not expose the key %s in a failure', async (apiKey) => {
    const provider = openaiCompatible({
      name: 'local',
      baseUrl: upstream.baseUrl,
      apiKey,
      headers: { 'x-org': `${apiKey}-of-us` },
      defaultPrice: { input: 1, output: 1 },
    })
    const model = provider.model('any')
    if (model === undefined) throw new Error('the default price makes any id a model')
    const error = { message: `${apiKey} and ${apiKey}-of-us are refused`, code: apiKey }
    upstream.reply = () => ({ kind: 'json', value: { error }, status: 400 })
    const failure = await failureOf(provider.complete(providerCall(chat(), runtime, { model })))
    expect(failure.message).toBe('[removed] and [removed] are refused')
    expect(failure.details.upstream?.code).toBe('[removed]')
  })

  it('serves only the configured models, with the documented defaults', () => {
    const provider = openaiCompatible({
      name: 'local',
      baseUrl: 'http://localhost:1234/v1',
      models: [
        { id: 'meta-llama/Llama-3.3-70B', price: { input: 0, output: 0 } },
        { id: 'tiny', price: { input: 0.1, output: 0.2 }, contextWindowTokens: 8000, family: 'own' },
      ],
    })
    expect(provider.models).toEqual([
      {
        id: 'meta-llama/Llama-3.3-70B',
        family: 'llama',
        contextWindowTokens: 128_000,
        maxOutputTokens: 16_384,
        price: { input: 0, output: 0 },
      },
      {
        id: 'tiny',
        family: 'own',
        contextWindowTokens: 8000,
        maxOutputTokens: 8000,
        price: { input: 0.1, output: 0.2 },
      },
    ])
    expect(provider.model('other')).toBeUndefined()
    expect(provider.model('__proto__')).toBeUndefined()
  })

  it('serves any model with a default price, in the family of its id or of the provider', () => {
    const provider = openaiCompatible({
      name: 'hub',
      baseUrl: 'https://hub.test/v1',
      defaultPrice: { input: 1, output: 2 },
    })
    expect(provider.models).toEqual([])
    expect(provider.model('mistralai/Mixtral-8x7B')).toMatchObject({
      family: 'mistral',
      price: { input: 1, output: 2 },
    })
    expect(provider.model('nobody-knows')?.family).toBe('hub')
  })

  it('sends the configured headers, and no key if none is set', async () => {
    const provider = openaiCompatible({
      name: 'local',
      baseUrl: upstream.baseUrl,
      headers: { 'x-title': 'app' },
      models: [{ id: 'm', price: { input: 0, output: 0 } }],
    })
    const [model] = provider.models
    if (model === undefined) throw new Error('one model was given')
    await provider.complete(providerCall(chat(), runtime, { model }))
    expect(upstream.last.headers['x-title']).toBe('app')
    expect(upstream.last.headers).not.toHaveProperty('authorization')
  })
})

describe('invalid options', () => {
  const price = { input: 1, output: 1 }
  const base = { name: 'x', baseUrl: 'https://x.test/v1', defaultPrice: price }
  it.each([
    [
      () => openai({ apiKey: '' }),
      'openai: apiKey: expected a key of ASCII characters without spaces, got a string of 0 characters.',
    ],
    [
      () => openai({ apiKey: 'a b' }),
      'openai: apiKey: expected a key of ASCII characters without spaces, got a string of 3 characters.',
    ],
    [
      () => openai({ apiKey: 'k', retries: 3 } as never),
      'openai: retries: there is no such option. The options are name, apiKey, baseUrl, models, prices, defaultPrice, fetch.',
    ],
    [
      () => anthropic({ apiKey: 'k', baseUrl: 'ftp://x' }),
      'anthropic: baseUrl: expected an http or https URL without credentials, query or fragment, got "ftp://x".',
    ],
    [() => anthropic({ apiKey: 'k', version: 'new' }), 'anthropic: version: expected a date, YYYY-MM-DD, got "new".'],
    [
      () => openai({ baseURL: 'https://x.test' } as never),
      'openai: baseURL: there is no such option. Did you mean baseUrl?',
    ],
    [
      () => openai({ models: [{ id: 'gpt-4o', prize: price }] } as never),
      'openai: models[0].prize: there is no such option. Did you mean price?',
    ],
    [
      () => openai({ baseUrl: 'https://user:secret@x.test' }),
      'openai: baseUrl: expected an http or https URL without credentials, query or fragment, got a string of 26 characters.',
    ],
    [
      () => openaiCompatible({ ...base, name: 'a/b' }),
      'openaiCompatible: name: expected a letter or digit, then up to 63 letters, digits, . _ -, got "a/b".',
    ],
    [
      () => openaiCompatible({ ...base, headers: { Host: 'x' } }),
      'openaiCompatible: headers.Host: expected header names in lowercase.',
    ],
    [
      () => openaiCompatible({ ...base, headers: { host: 'x' } }),
      'openaiCompatible: headers.host: expected another header: this one is set by the gateway.',
    ],
    [
      () => openaiCompatible({ name: 'x', baseUrl: 'https://x.test' }),
      'openaiCompatible: models: expected at least one model unless defaultPrice or prices is set, got none.',
    ],
    [
      () => openaiCompatible({ name: 'x', baseUrl: 'https://x.test', models: [{ id: 'm' }] }),
      'openaiCompatible: models[0]: the model "m" has no price. Set price to { input, output } in dollars per million tokens, or set defaultPrice for all models.',
    ],
    [
      () => openai({ apiKey: 'k', models: [{ id: 'm', price: { input: 0.000003, output: 1 } }] }),
      'openai: models[0].price.input: expected dollars per million tokens: 0, or from 0.001 to 10000 (0.000003 per token is 3), got 0.000003.',
    ],
    [
      () => openai({ apiKey: 'k', defaultPrice: { input: 1, output: 20_000 } }),
      'openai: defaultPrice.output: expected dollars per million tokens: 0, or from 0.001 to 10000 (0.000003 per token is 3), got 20000.',
    ],
    [
      () =>
        openai({
          apiKey: 'k',
          models: [
            { id: 'm', price },
            { id: 'm', price },
          ],
        }),
      'openai: models[1]: the model "m" is listed twice. Remove one of the entries.',
    ],
    [
      () => openai({ apiKey: 'k', models: [{ id: 'm', price, small: 'claude-haiku-4-5' }] }),
      'openai: models: small: "claude-haiku-4-5" is not a model of this provider; expected a model of the family "gpt".',
    ],
    [
      () => openai({ apiKey: 'k', models: [{ id: 'llama-9', price, small: 'gpt-4o' }] }),
      'openai: models: small: "gpt-4o" is of the family "gpt"; expected a model of the family "llama".',
    ],
    [
      () => openai({ apiKey: 'k', fetch: 'yes' } as never),
      'openai: fetch: expected a function like the global fetch, got "yes".',
    ],
  ])('number %# is rejected with its path and the expected value', async (create, text) => {
    const failure = await failureOf(Promise.resolve().then(create))
    expect([failure.kind, failure.message]).toEqual(['invalid-request', text])
  })

  it('an undefined field is equivalent to an absent field', () => {
    const baseUrl = undefined as unknown as string
    expect(openai({ apiKey: 'k', baseUrl, models: [{ id: 'gpt-4o', small: baseUrl }] }).name).toBe('openai')
  })

  it('a model in the options overrides the catalog', () => {
    const provider = openai({ apiKey: 'k', models: [{ id: 'gpt-4o', price: { input: 9, output: 9 } }] })
    expect(provider.model('gpt-4o')).toMatchObject({ price: { input: 9, output: 9 }, contextWindowTokens: 128_000 })
    expect(provider.model('gpt-4o-2024-08-06')).toMatchObject({
      id: 'gpt-4o-2024-08-06',
      price: { input: 9, output: 9 },
    })
    expect(provider.models.filter((model) => model.id === 'gpt-4o')).toHaveLength(1)
  })
})
