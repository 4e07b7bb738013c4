import { describe, expect, it } from 'vitest'
import { anthropic } from '../../src/index.ts'
import { smallModelFor } from '../../src/providers/small-model.ts'
import { undiciTransport } from '../../src/http/transport-undici.ts'
import { readResults, waitForBatch } from '../support/batches.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { timeouts } from '../support/provider-call.ts'
import { PRICE, startStage } from '../support/stage.ts'
import { startUpstream } from '../support/upstream.ts'

it.each([
  ['2023-06-01', { temperature: 0.7, top_p: 0.9 }],
  ['2026-10-21', {}],
])(
  'sends the defaults of an alias in version %s of the Anthropic API only where they are allowed',
  async (version, sampling) => {
    const stage = await startStage({
      catalog: { aliases: [{ id: 'fast', target: 'anthropic/small', defaults: { temperature: 0.7, topP: 0.9 } }] },
    })
    await fetch(`${stage.url}/v1/messages`, {
      method: 'POST',
      headers: { 'x-api-key': stage.secret, 'content-type': 'application/json', 'anthropic-version': version },
      body: JSON.stringify({ model: 'fast', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] }),
    })
    await stage.close()
    const { temperature, top_p } = stage.upstream.last.body
    expect({ temperature, top_p }).toEqual({ temperature: undefined, top_p: undefined, ...sampling })
    expect(stage.upstream.last.headers['anthropic-version']).toBe(version)
  },
)

it('calls a small model with a version that allows its temperature for each version of the provider', async () => {
  const upstream = await startUpstream({ reply: () => 'Short.' })
  const transport = undiciTransport()
  const models = [{ id: 'small', price: PRICE }]
  const provider = anthropic({ apiKey: 'sk-test-key', baseUrl: upstream.url, version: '2026-10-21', models })
  const model = provider.model('small')
  if (model === undefined) throw new Error('no model')
  const options = { runtime: manualRuntime(transport), timeouts }
  const small = smallModelFor({ provider, model: { ...model, small: 'small' } }, options)
  await small?.ask({ instruction: 'Summarize.', text: 'Text.', maxTokens: 9, signal: new AbortController().signal })
  await transport.close()
  await upstream.close()
  expect(upstream.last.headers['anthropic-version']).toBe('2023-06-01')
  expect(upstream.last.body['temperature']).toBe(0)
})

const ALIAS = { id: 'fast', target: 'anthropic/small', defaults: { temperature: 0.7, topP: 0.9 } }
const ENTRIES = [{ id: 'small', price: PRICE }]

/** A gateway whose provider sends `version` unless the caller sends another one. */
async function startVersioned(version?: string) {
  const upstream = await startUpstream({ reply: () => 'Hello.' })
  const provider = anthropic({
    apiKey: 'sk-test-key',
    baseUrl: upstream.url,
    models: ENTRIES,
    ...(version && { version }),
  })
  const stage = await startStage({ providers: [provider], catalog: { aliases: [ALIAS] } })
  const post = (path: string, body: object, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${stage.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ messages: [{ role: 'user', content: 'Hello' }], ...body }),
    })
  const close = async (): Promise<void> => {
    await stage.close()
    await upstream.close()
  }
  return { upstream, stage, post, close }
}

const LATER = '2026-10-21'
const EARLIER = '2023-06-01'

describe('a provider with a version that rejects sampling parameters', () => {
  it.each([
    [LATER, undefined, {}],
    [EARLIER, undefined, { temperature: 0.7, top_p: 0.9 }],
    [LATER, EARLIER, { temperature: 0.7, top_p: 0.9 }],
    [EARLIER, LATER, {}],
  ])('provider %s, caller %s: sends the defaults of an alias only where allowed', async (version, sent, sampling) => {
    const { upstream, post, close } = await startVersioned(version)
    const response = await post(
      '/v1/messages',
      { model: 'fast', max_tokens: 9 },
      sent === undefined ? {} : { 'anthropic-version': sent },
    )
    await close()
    expect(response.status).toBe(200)
    expect(upstream.last.headers['anthropic-version']).toBe(sent ?? version)
    const { temperature, top_p } = upstream.last.body
    expect({ temperature, top_p }).toEqual({ temperature: undefined, top_p: undefined, ...sampling })
  })

  it.each([
    ['/v1/chat/completions', { max_tokens: 9, temperature: 0.5, top_p: 0.4, top_k: 3 }, 'temperature, top_p, top_k'],
    ['/v1/responses', { input: 'Hello', messages: undefined, temperature: 0.5, top_p: 0.4 }, 'temperature, top_p'],
  ])('names the sampling parameters of %s, which it does not send', async (path, fields, ignored) => {
    for (const model of ['anthropic/small', 'fast']) {
      const { upstream, post, close } = await startVersioned(LATER)
      const response = await post(path, { model, ...fields })
      await close()
      expect(response.status).toBe(200)
      expect(upstream.last.text).not.toMatch(/"temperature"|"top_p"|"top_k"/)
      expect(response.headers.get('x-svc-ignored')).toBe(ignored)
    }
  })

  it('still sends them in the earlier version', async () => {
    const { upstream, post, close } = await startVersioned(EARLIER)
    const response = await post('/v1/chat/completions', { model: 'anthropic/small', max_tokens: 9, temperature: 0.5 })
    await close()
    expect(response.headers.get('x-svc-ignored')).toBeNull()
    expect(upstream.last.body['temperature']).toBe(0.5)
  })
})

it.each([LATER, EARLIER])('counts tokens and runs batches in version %s', async (version) => {
  const { upstream, stage, post, close } = await startVersioned()
  const headers = { 'anthropic-version': version }
  const counted = await post('/v1/messages/count_tokens', { model: 'fast' }, headers)
  expect(await counted.json()).toMatchObject({ input_tokens: 11 })
  expect(upstream.last.headers['anthropic-version']).toBe(version)
  expect(upstream.last.text).not.toMatch(/"temperature"|"top_p"/)

  const params = { model: 'fast', max_tokens: 9, messages: [{ role: 'user' as const, content: 'Hello' }] }
  const batch = await stage.anthropic.messages.batches.create({ requests: [{ custom_id: 'one', params }] }, { headers })
  await waitForBatch(stage.anthropic, batch.id)
  const results = await readResults(stage.anthropic, batch.id)
  await close()
  expect(results[0]?.result.type).toBe('succeeded')
  expect(upstream.last.headers['anthropic-version']).toBe(version)
  expect('temperature' in upstream.last.body).toBe(version === EARLIER)
})
