import { expect, it } from 'vitest'
import { anthropic } from '../../src/index.ts'
import { PRICE, startStage } from '../support/stage.ts'
import { startUpstream } from '../support/upstream.ts'

it.each([
  ['claude-fable-5-2', 'any', 400],
  ['claude-fable-5-1', 'tool', 400],
  ['claude-fable-5-1-20261001', 'any', 400],
  ['claude-fable-5-1', 'auto', 200],
  ['claude-mythos-5-1', 'any', 400],
  ['claude-mythos-5-2', 'tool', 400],
  ['claude-opus-5-5', 'any', 400],
  ['claude-opus-5-5-20260922', 'tool', 400],
  ['claude-sonnet-5-5', 'any', 400],
  ['claude-sonnet-5-5@20260928', 'tool', 400],
  ['claude-opus-5-5', 'none', 200],
  ['claude-mythos-5', 'any', 200],
  ['claude-opus-5', 'any', 200],
  ['claude-opus-5-20260724', 'any', 200],
  ['claude-sonnet-5', 'tool', 200],
  ['claude-sonnet-4-5-20250929', 'tool', 200],
  ['claude-haiku-5-5', 'any', 200],
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

it.each([
  ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }], tool_choice: 'required' }],
  ['/v1/responses', { input: 'Hi', tool_choice: { type: 'function', name: 'f' } }],
])('rejects a forced call of %s before it is sent, streamed and not streamed', async (path, fields) => {
  const upstream = await startUpstream({ reply: () => 'Hello.' })
  const id = 'claude-fable-5-2'
  const stage = await startStage({
    providers: [anthropic({ apiKey: 'sk-test', baseUrl: upstream.url, models: [{ id, price: PRICE }] })],
  })
  const tools = path.includes('chat')
    ? [{ type: 'function', function: { name: 'f' } }]
    : [{ type: 'function', name: 'f' }]
  for (const stream of [false, true]) {
    const response = await fetch(`${stage.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: `anthropic/${id}`, tools, stream, ...fields }),
    })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ error: { param: 'tool_choice' } })
  }
  await stage.close()
  await upstream.close()
  expect(upstream.requests).toEqual([])
})
