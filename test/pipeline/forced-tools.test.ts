import { expect, it } from 'vitest'
import { anthropic } from '../../src/index.ts'
import { PRICE, startStage } from '../support/stage.ts'
import { startUpstream } from '../support/upstream.ts'

it.each([
  ['claude-fable-5-2', 'any', 400],
  ['claude-fable-5-1', 'tool', 400],
  ['claude-fable-5-1-20261001', 'any', 400],
  ['claude-fable-5-1', 'auto', 200],
  ['claude-fable-5', 'any', 200],
  ['claude-fable-5-20260609', 'any', 200],
])('responds to %s with tool_choice %s with %i', async (id, type, status) => {
  const upstream = await startUpstream({ reply: () => 'Hello.' })
  const stage = await startStage({
    providers: [anthropic({ apiKey: 'sk-test', baseUrl: upstream.url, models: [{ id, price: PRICE }] })],
  })
  const response = await fetch(`${stage.url}/v1/messages`, {
    method: 'POST',
    headers: { 'x-api-key': stage.secret, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: `anthropic/${id}`,
      max_tokens: 10,
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [{ name: 'look_up', input_schema: { type: 'object' } }],
      tool_choice: { type, ...(type === 'tool' && { name: 'look_up' }) },
    }),
  })
  const text = await response.text()
  await stage.close()
  await upstream.close()
  expect(response.status, text).toBe(status)
  expect(upstream.requests).toHaveLength(status === 200 ? 1 : 0)
  expect(text.includes('tool_choice')).toBe(status === 400)
})
