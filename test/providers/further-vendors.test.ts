import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createGateway, openai, openaiCompatible, type Gateway, type Provider } from '../../src/index.ts'
import { bedrock, type AwsCredentials } from '../../src/bedrock.ts'
import * as vendors from '../../src/providers.ts'
import type { SignRequest } from '../../src/providers/http-request.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

let upstream: Upstream
let gateway: Gateway | undefined

beforeEach(async () => {
  upstream = await startUpstream()
})

afterEach(async () => {
  vi.unstubAllEnvs()
  await gateway?.close()
  gateway = undefined
  await upstream.close()
})

const PRICE = { input: 1, output: 2 }

async function ask(provider: Provider, model: string, body: object = {}): Promise<{ status: number; text: string }> {
  gateway = createGateway({ providers: [provider], cache: false, runtime: { random: () => 0 } })
  const key = await gateway.keys.create({ name: 'vendors' })
  const response = await gateway.fetch('http://gateway.test/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${key.value}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello?' }], ...body }),
  })
  return { status: response.status, text: await response.text() }
}

describe('vendors of the chat format', () => {
  const priced = [
    ['groq', vendors.groq, 'openai/gpt-oss-120b', 'GROQ_API_KEY'],
    ['mistral', vendors.mistral, 'mistral-large-latest', 'MISTRAL_API_KEY'],
    ['deepseek', vendors.deepseek, 'deepseek-chat', 'DEEPSEEK_API_KEY'],
    ['xai', vendors.xai, 'grok-4.3', 'XAI_API_KEY'],
    ['together', vendors.together, '', 'TOGETHER_API_KEY'],
    ['fireworks', vendors.fireworks, '', 'FIREWORKS_API_KEY'],
    ['cerebras', vendors.cerebras, 'gpt-oss-120b', 'CEREBRAS_API_KEY'],
  ] as const

  it.each(priced)(
    '%s has priced models, and sends the key of its environment variable',
    async (name, make, id, variable) => {
      vi.stubEnv(variable, 'sk-from-the-environment')
      const provider = make({ baseUrl: upstream.baseUrl })
      const model = provider.models.find((one) => one.id === id) ?? provider.models[0]

      const { status } = await ask(provider, `${name}/${model?.id}`)

      expect(status).toBe(200)
      expect(model?.price.output).toBeGreaterThan(0)
      expect(model?.pricedAt).toMatch(/^\d{4}-\d{2}-\d{2}$/)
      expect(upstream.last.headers['authorization']).toBe('Bearer sk-from-the-environment')
    },
  )

  it.each([
    ['ollama', vendors.ollama],
    ['vllm', vendors.vllm],
    ['lmstudio', vendors.lmStudio],
  ] as const)('%s serves any model free of charge without a key', async (name, make) => {
    const { status } = await ask(make({ baseUrl: upstream.baseUrl }), `${name}/llama3.2`)

    expect(status).toBe(200)
    expect(upstream.last.headers['authorization']).toBeUndefined()
  })

  it('rejects a vendor without prices at creation', () => {
    expect(() => vendors.openrouter()).toThrow(/openrouter: prices/)
    expect(() => bedrock({ region: 'us-east-1' })).toThrow(/bedrock: prices/)
    expect(() => vendors.vertex({ project: 'p' })).toThrow(/vertex: prices/)
    expect(() => vendors.azureOpenai({ resource: 'r' })).toThrow(/azureOpenai: prices/)
  })
})

describe('keys', () => {
  it('returns 503 with the name of the variable for a missing key, without a call', async () => {
    vi.stubEnv('OPENAI_API_KEY', '')

    const { status, text } = await ask(openai({ baseUrl: upstream.baseUrl }), 'openai/gpt-4o-mini')

    expect([status, upstream.requests.length]).toEqual([503, 0])
    expect(text).toContain('OPENAI_API_KEY')
  })

  it('calls the key function for each call, and exposes no key in an error', async () => {
    let count = 0
    const apiKey = async (): Promise<string> => `sk-rotating-${(count += 1)}`
    upstream.reply = ({ headers }) => ({
      kind: 'failure',
      status: 400,
      failure: { message: `Incorrect value ${headers['authorization']?.slice(7)}` },
    })
    const provider = openai({ baseUrl: upstream.baseUrl, apiKey })

    const first = await ask(provider, 'openai/gpt-4o-mini')
    const second = await ask(provider, 'openai/gpt-4o-mini')

    expect(upstream.requests.map(({ headers }) => headers['authorization'])).toEqual([
      'Bearer sk-rotating-1',
      'Bearer sk-rotating-2',
    ])
    expect([first.status, second.status]).toEqual([400, 400])
    expect(first.text + second.text).not.toContain('sk-rotating')
  })

  it('ends a call whose key never resolves', async () => {
    const provider = openai({ baseUrl: upstream.baseUrl, apiKey: () => new Promise<string>(() => {}) })
    gateway = createGateway({ providers: [provider], cache: false, timeouts: { totalMs: 50 } })
    const key = await gateway.keys.create({ name: 'vendors' })

    const response = await gateway.fetch('http://gateway.test/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${key.value}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'openai/gpt-4o-mini', messages: [{ role: 'user', content: 'Hello?' }] }),
    })

    expect(response.status).toBe(504)
  })
})

describe('azureOpenai', () => {
  const options = { apiKey: 'azure-key', models: [{ id: 'my-gpt', price: PRICE }] }

  it('calls the v1 address with the key in its own header', async () => {
    const { status } = await ask(vendors.azureOpenai({ ...options, baseUrl: upstream.url }), 'azure/my-gpt')

    expect([status, upstream.last.path]).toEqual([200, '/openai/v1/chat/completions'])
    expect(upstream.last.headers['api-key']).toBe('azure-key')
    expect(upstream.last.body['model']).toBe('my-gpt')
  })

  it('calls the deployment with an api-version, and sends a token of Entra ID', async () => {
    const { apiKey: _apiKey, ...others } = options
    const provider = vendors.azureOpenai({
      ...others,
      baseUrl: upstream.url,
      apiVersion: '2024-10-21',
      token: () => 'entra-token',
    })

    const { status } = await ask(provider, 'azure/my-gpt')

    const path = '/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21'
    expect([status, upstream.last.path]).toEqual([200, path])
    expect(upstream.last.headers['authorization']).toBe('Bearer entra-token')
  })
})

describe.each<[string, (options: vendors.AzureOpenaiOptions) => Provider]>([
  ['azure', (options) => vendors.azureOpenai({ ...options, apiVersion: '2024-10-21' })],
  ['gemini', (options) => vendors.gemini(options)],
  ['vertex', (options) => vendors.vertex({ ...options, project: 'p' })],
  ['bedrock', (options) => bedrock(options)],
])('a model name of %s that would change the URL of the call', (name, make) => {
  const changing = ['.', '..', './a', 'a/.', 'a/./b', 'a/../b', '%2e', '.%2e', 'a?b', 'a#b', 'a\\b', 'a;b']

  it.each(changing)('is rejected in a request: %j', async (id) => {
    const provider = make({ apiKey: 'k', baseUrl: upstream.url, defaultPrice: PRICE })
    const { status } = await ask(provider, `${name}/${id}`)

    expect([status, upstream.requests.length]).toEqual([400, 0])
  })

  it.each(changing)('is rejected when the provider is created: %j', (id) => {
    expect(() => make({ apiKey: 'k', baseUrl: upstream.url, models: [{ id, price: PRICE }] })).toThrow('models[0].id')
  })

  it('does not include dots that are part of a segment', () => {
    const ids = ['gpt-4.1', '...', 'a..b', '.5b', 'a./b']
    const models = ids.map((id) => ({ id, price: PRICE }))

    expect(make({ apiKey: 'k', baseUrl: upstream.url, models }).models.map(({ id }) => id)).toEqual(
      expect.arrayContaining(ids),
    )
  })
})

describe('bedrock', () => {
  const models = [{ id: 'openai.gpt-oss-120b', price: PRICE }]

  it('signs each call with SigV4', async () => {
    const credentials = (): AwsCredentials => ({ accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'secret' })
    const provider = bedrock({ region: 'eu-west-1', baseUrl: upstream.url, credentials, models })

    const { status } = await ask(provider, 'bedrock/openai.gpt-oss-120b')

    expect([status, upstream.last.path]).toEqual([200, '/openai/v1/chat/completions'])
    expect(upstream.last.headers['authorization']).toMatch(
      /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/eu-west-1\/bedrock\/aws4_request, SignedHeaders=.*host.*Signature=[0-9a-f]{64}$/,
    )
    expect(upstream.last.headers['x-amz-date']).toMatch(/^\d{8}T\d{6}Z$/)
  })

  it('uses the key of the environment, sends the message format for Claude, and names missing variables', async () => {
    vi.stubEnv('AWS_BEARER_TOKEN_BEDROCK', 'bedrock-key')
    const claude = {
      api: 'messages' as const,
      baseUrl: upstream.url,
      models: [{ id: 'anthropic.claude-x', price: PRICE }],
    }

    const { status } = await ask(bedrock(claude), 'bedrock/anthropic.claude-x')
    expect([status, upstream.last.path]).toEqual([200, '/anthropic/v1/messages'])
    expect(upstream.last.headers['authorization']).toBe('Bearer bedrock-key')

    vi.stubEnv('AWS_BEARER_TOKEN_BEDROCK', '')
    vi.stubEnv('AWS_ACCESS_KEY_ID', '')
    const missing = await ask(bedrock(claude), 'bedrock/anthropic.claude-x')
    expect(missing.status).toBe(503)
    expect(missing.text).toContain('AWS_ACCESS_KEY_ID')
  })
})

describe('vertex', () => {
  it('sends Claude requests with the model in the URL and the version in the body', async () => {
    upstream.reply = ({ index }) => ({
      kind: 'json',
      value: {
        id: `msg_${index}`,
        type: 'message',
        role: 'assistant',
        model: 'claude-x',
        content: [{ type: 'text', text: 'Hello.' }],
        stop_reason: 'end_turn',
        usage: { input_tokens: 3, output_tokens: 2 },
      },
    })
    const provider = vendors.vertex({
      project: 'my-project',
      publisher: 'anthropic',
      baseUrl: upstream.url,
      apiKey: () => 'ya29.token',
      models: [{ id: 'claude-x@20260101', price: PRICE }],
    })

    const { status } = await ask(provider, 'vertex/claude-x@20260101')

    const path = '/v1/projects/my-project/locations/global/publishers/anthropic/models/claude-x%4020260101:rawPredict'
    expect([status, upstream.last.path]).toEqual([200, path])
    expect(upstream.last.body).toMatchObject({ anthropic_version: 'vertex-2023-10-16', max_tokens: 16_384 })
    expect(upstream.last.body['model']).toBeUndefined()
    expect(upstream.last.headers['authorization']).toBe('Bearer ya29.token')
  })

  it('signs calls with a custom function', async () => {
    const provider = vendors.vertex({
      project: 'p',
      baseUrl: upstream.url,
      sign: (request) => ({ ...request, headers: { ...request.headers, 'x-signed': String(request.body?.length) } }),
      models: [{ id: 'gemini-2.5-flash', price: PRICE }],
    })
    upstream.reply = () => ({
      kind: 'json',
      value: { candidates: [{ content: { parts: [{ text: 'Hi' }] }, finishReason: 'STOP' }] },
    })

    await ask(provider, 'vertex/gemini-2.5-flash')

    expect(upstream.last.headers['x-signed']).toBe(String(upstream.last.text.length))
    expect(upstream.last.path).toBe(
      '/v1/projects/p/locations/global/publishers/google/models/gemini-2.5-flash:generateContent',
    )
  })

  it('removes the headers of a custom sign function from an error that echoes them', async () => {
    const provider = vendors.vertex({
      project: 'p',
      baseUrl: upstream.url,
      sign: ({ headers, ...request }) => ({
        ...request,
        headers: { ...headers, authorization: 'Bearer ya29.token', 'x-session': 'session-4711' },
      }),
      models: [{ id: 'gemini-2.5-flash', price: PRICE }],
    })
    upstream.reply = ({ headers }) => ({
      kind: 'failure',
      status: 400,
      failure: { message: `${headers['authorization']} and ${headers['x-session']} are refused` },
    })

    const { status, text } = await ask(provider, 'vertex/gemini-2.5-flash')

    expect(status).toBe(400)
    expect(text).toContain('Bearer [removed] and [removed] are refused')
    expect(text).not.toContain('ya29')
  })

  it.each(['Bearer', 'Basic', 'Token', 'Key', 'Api-Key'])(
    'removes a token from an error that repeats it without its scheme %s',
    async (scheme) => {
      const authorization = `${scheme} token-4711`
      const models = [{ id: 'large', price: PRICE }]
      const baseUrl = upstream.baseUrl
      const sign: SignRequest = ({ headers, ...request }) => ({ ...request, headers: { ...headers, authorization } })
      upstream.reply = () => ({ kind: 'failure', status: 400, failure: { message: 'No model for token-4711' } })

      const byHeader = openaiCompatible({ name: 'own', baseUrl, headers: { authorization }, models })
      expect((await ask(byHeader, 'own/large')).text).toContain('No model for [removed]')
      await gateway?.close()
      const bySign = vendors.vertex({ project: 'p', publisher: 'anthropic', baseUrl, sign, models })
      expect((await ask(bySign, 'vertex/large')).text).toContain('No model for [removed]')
    },
  )
})
