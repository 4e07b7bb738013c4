/**
 * Sends two long prompts through a new gateway in a new process. Prints the milliseconds of each request, and of parsing and
 * serializing the body once.
 */
import { createGateway, openaiCompatible } from 'sluice'
import { generatedChat } from '../quality/generated-chat.ts'

const SIZE = { contextWindowTokens: 1_000_000, maxOutputTokens: 4096 }
const RESPONSE = {
  id: 'chatcmpl-bench',
  object: 'chat.completion',
  created: 0,
  model: 'large',
  choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
}

const gateway = createGateway({
  providers: [
    openaiCompatible({
      name: 'mock',
      baseUrl: 'http://mock/v1',
      family: 'mock',
      fetch: async () => Response.json(RESPONSE),
      models: [{ id: 'large', price: { input: 3, output: 15 }, ...SIZE }],
    }),
  ],
  cache: false,
})
const { value: key } = await gateway.keys.create({ name: 'bench' })

async function send(seed: number): Promise<{ readonly ms: number; readonly body: string }> {
  const body = JSON.stringify({ model: 'mock/large', messages: generatedChat(seed, 135) })
  const headers = { 'content-type': 'application/json', 'x-api-key': key, 'x-savings-level': 'extreme' }
  const request = new Request('http://gateway/v1/chat/completions', { method: 'POST', headers, body })
  const startedAt = performance.now()
  const response = await gateway.fetch(request)
  await response.text()
  const ms = performance.now() - startedAt
  if (response.headers.get('x-svc-strategy')?.startsWith('Savings-Slider') !== true) {
    throw new Error(`The prompt was not shortened: status ${response.status}.`)
  }
  return { ms, body }
}

function parseMs(body: string): number {
  const startedAt = performance.now()
  JSON.stringify(JSON.parse(body))
  return performance.now() - startedAt
}

const first = await send(1)
const second = await send(2)
const parses = Array.from({ length: 5 }, () => parseMs(first.body)).toSorted((a, b) => a - b)
console.log(JSON.stringify({ first: first.ms, second: second.ms, parse: parses[2] }))
