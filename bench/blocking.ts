/**
 * npm run bench:blocking: the longest stretch of processor time between two turns of the event loop that one allowed body
 * causes. Processor time, not wall time: a busy machine changes it little. Medians of BENCH_TRIES (5), with the least and
 * the greatest.
 */
import { createGateway, openaiCompatible } from '../src/index.ts'
import { printTable } from './report.ts'

const TRIES = Number(process.env['BENCH_TRIES'] ?? 5)
const GOAL_MS = 50
const MB = 1_000_000

interface Body {
  readonly name: string
  readonly path?: string
  readonly make: () => string
}

const chat = (messages: unknown, rest = ''): string =>
  `{"model":"bench/chat","max_tokens":16${rest},"messages":${JSON.stringify(messages)}}`
const hello = [{ role: 'user', content: 'Hello.' }]
const prose = 'The quick brown fox jumps over the lazy dog while it sleeps. '
const image = (bytes: number): unknown => ({
  type: 'image_url',
  image_url: { url: `data:image/png;base64,${'iVBORw0KGgoAAAANSUhEUgAA'.repeat(bytes / 24)}` },
})

const bodies: readonly Body[] = [
  { name: '31 MB of numbers in an unknown field', make: () => chat(hello, `,"x":[${'1,'.repeat(15.5 * MB)}1]`) },
  { name: '31 MB of blanks', make: () => chat(hello, ' '.repeat(31 * MB)) },
  {
    name: 'batch of 10 MB with 900,000 keys',
    path: '/v1/messages/batches',
    make: () => `{"requests":[{"custom_id":"a","params":{${'"k":1,'.repeat(900_000)}"z":1}}]}`,
  },
  {
    name: 'embeddings of 2,048 texts of 14 KB',
    path: '/v1/embeddings',
    make: () => JSON.stringify({ model: 'bench/embedding', input: Array(2048).fill(prose.repeat(225)) }),
  },
  { name: '30 MB of images', make: () => chat([{ role: 'user', content: Array(10).fill(image(3 * MB)) }]) },
  { name: '8 MB of prose in one message', make: () => chat([{ role: 'user', content: prose.repeat(130_000) }]) },
  {
    name: '1 MB of 33,000 short messages',
    make: () =>
      chat(Array.from({ length: 33_000 }, (_, at) => ({ role: at % 2 ? 'assistant' : 'user', content: 'ab' }))),
  },
  {
    name: '3 MB of messages, tier 5',
    make: () =>
      chat(
        Array.from({ length: 1500 }, (_, at) => ({ role: at % 2 ? 'assistant' : 'user', content: prose.repeat(32) })),
      ),
  },
  { name: '50,000 chunks of a stream at once', make: () => chat(hello, ',"stream":true') },
]

const chunk = `data: ${JSON.stringify({ id: 'x', choices: [{ index: 0, delta: { content: 'a' } }] })}\n\n`
const lastChunks = 'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
const chunks = new TextEncoder().encode(chunk.repeat(50_000) + lastChunks)

const price = { input: 1, output: 2 }
const gateway = createGateway({
  providers: [
    openaiCompatible({
      name: 'bench',
      baseUrl: 'http://upstream/v1',
      models: [
        { id: 'chat', price, contextWindow: 10_000_000, maxOutputTokens: 100 },
        { id: 'embedding', kind: 'embedding', price, contextWindow: 8192 },
      ],
    }),
  ],
  runtime: { fetch: answer },
  log: () => {},
})
const limits = { budget_limit_cents: 100_000_000, rate_limit_tokens: 1_000_000_000_000 }
const key = await gateway.keys.create({ name: 'bench', ...limits })

async function answer(url: string | URL | Request, init?: RequestInit): Promise<Response> {
  if (String(url).includes('embeddings')) return Response.json({ error: { message: 'No.' } }, { status: 400 })
  const sent = init?.body instanceof Uint8Array ? new TextDecoder().decode(init.body.subarray(0, 200)) : ''
  if (sent.includes('"stream":true')) return new Response(chunks, { headers: { 'content-type': 'text/event-stream' } })
  const usage = { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 }
  const message = { role: 'assistant', content: 'Yes.' }
  return Response.json({ id: 'x', model: 'chat', choices: [{ index: 0, message, finish_reason: 'stop' }], usage })
}

/** Sends a body and returns the status and the longest stretch, in milliseconds. */
async function longestStretch({ path = '/v1/chat/completions' }: Body, bytes: Uint8Array): Promise<[number, number]> {
  const headers = { authorization: `Bearer ${key.value}`, 'content-type': 'application/json' }
  const steering = path.includes('chat') && bytes.length < 4 * MB ? { 'x-savings-level': 'extreme' } : {}
  const request = new Request(`http://gateway${path}`, {
    method: 'POST',
    headers: { ...headers, ...steering },
    body: bytes as BodyInit,
  })
  let longest = 0
  let isRunning = true
  let before = process.cpuUsage()
  const turn = (): void => {
    const { user, system } = process.cpuUsage(before)
    longest = Math.max(longest, (user + system) / 1000)
    before = process.cpuUsage()
    if (isRunning) setImmediate(turn)
  }
  setImmediate(turn)
  const response = await gateway.fetch(request)
  await response.text()
  isRunning = false
  return [response.status, longest]
}

const rows: string[][] = [['body', 'status', 'longest stretch, ms', 'goal']]
for (const body of bodies) {
  const bytes = new TextEncoder().encode(body.make())
  const stretches: number[] = []
  let status = 0
  for (let attempt = 0; attempt < TRIES; attempt++) {
    const [seen, ms] = await longestStretch(body, bytes)
    status = seen
    stretches.push(ms)
  }
  const sorted = stretches.toSorted((one, other) => one - other)
  const [least = 0, median = 0, most = 0] = [sorted[0], sorted[TRIES >> 1], sorted.at(-1)]
  const figure = `${median.toFixed(0)} (${least.toFixed(0)}..${most.toFixed(0)})`
  rows.push([body.name, String(status), figure, median <= GOAL_MS ? 'met' : 'MISSED'])
}
printTable(rows)
await gateway.close()
process.exit(0)
