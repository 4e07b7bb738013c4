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

it.each([
  ['"seed":12345678901234567890', '"seed":12345678901234567891'],
  ['"seed":9007199254740992', '"seed":9007199254740993'],
  ['"seed":0.10000000000000000', '"seed":0.10000000000000001'],
  ['"seed":1e400', '"seed":null'],
  ['"seed":[-0.0,1E+400]', '"seed":[0,null]'],
])('requests that differ only in a number that JSON.parse rounds get separate responses: %s', async (one, other) => {
  const reply = { kind: 'body', body: MESSAGE, headers: { 'content-type': 'application/json' } } as const
  const stage = await startStage({ reply: () => reply, cache: {} })
  const ask = async (field: string) => {
    const body = `{"model":"anthropic/small","max_tokens":10,${field},"messages":[{"role":"user","content":"Is water wet?"}]}`
    const headers = { 'x-api-key': stage.secret, 'content-type': 'application/json' }
    const response = await fetch(`${stage.url}/v1/messages`, { method: 'POST', headers, body })
    return [response.status, response.headers.get('x-svc-cache')]
  }
  const first = await ask(one)
  const second = await ask(other)
  await stage.close()

  expect(first[0]).toBe(200)
  expect(second).toEqual([200, 'MISS'])
})
