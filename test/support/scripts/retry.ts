/** A script whose only request fails once. It has no sockets, so only the retry timer keeps the process alive. */
import { createGateway, openaiCompatible } from '../../../src/index.ts'

const answer = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'large',
  choices: [{ index: 0, message: { role: 'assistant', content: 'At last.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
}
let calls = 0
const gateway = createGateway({
  providers: [
    openaiCompatible({ name: 'chat', baseUrl: 'http://upstream.invalid/v1', defaultPrice: { input: 1, output: 2 } }),
  ],
  cache: false,
  runtime: {
    random: () => 0.1,
    fetch: () => {
      calls += 1
      return Promise.resolve(calls === 1 ? new Response('{}', { status: 500 }) : Response.json(answer))
    },
  },
})
const { value } = await gateway.keys.create({ name: 'script' })
const response = await gateway.fetch(
  new Request('http://gateway.invalid/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'chat/large', messages: [{ role: 'user', content: 'Hello?' }], max_tokens: 20 }),
  }),
)
const { choices } = (await response.json()) as typeof answer
process.stdout.write(`${response.status} ${calls} ${choices[0]?.message.content}\n`)
