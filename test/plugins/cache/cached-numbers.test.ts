import { expect, it } from 'vitest'
import { startStage } from '../../support/stage.ts'

const MESSAGE =
  '{"id":"msg_1","type":"message","role":"assistant","model":"small","content":[{"type":"text","text":"Yes"}],' +
  '"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":2,"zz":0.10},' +
  '"zz":12345678901234567890}'

it('a cached response in the messages format has its own id, and keeps every number', async () => {
  const reply = { kind: 'body', body: MESSAGE, headers: { 'content-type': 'application/json' } } as const
  const stage = await startStage({ reply: () => reply, cache: {} })
  const ask = async () => {
    const response = await fetch(`${stage.url}/v1/messages`, {
      method: 'POST',
      headers: { 'x-api-key': stage.secret, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'anthropic/small',
        max_tokens: 10,
        messages: [{ role: 'user', content: 'Is water wet at noon?' }],
      }),
    })
    return { cache: response.headers.get('x-svc-cache'), text: await response.text() }
  }

  await ask()
  const { cache, text } = await ask()
  await stage.close()

  expect(cache).toBe('HIT')
  expect(text).toContain('"zz":12345678901234567890')
  expect(text).toContain('"zz":0.10')
  expect(text).toMatch(/^\{"id":"msg_(?!1")\w+"/)
})
