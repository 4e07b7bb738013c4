import { expect, it } from 'vitest'
import { anthropic } from '../../src/index.ts'
import { smallModelFor } from '../../src/wiring/savings.ts'
import { undiciTransport } from '../../src/http/transport-undici.ts'
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
