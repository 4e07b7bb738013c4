/**
 * npm run bench:tenants: eight keys on one gateway, one of them hostile. Seven ask small questions at a steady rate, first
 * alone, then while the eighth sends prompts that hang, prompts that make the upstream fail, streams that it does not read,
 * bodies of 30 MB and batches that wait. Prints statuses and latencies of the seven in both phases. Clients and upstream
 * share one process, the gateway has its own: what is measured includes the clients' own work.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer, request as httpRequest, type ServerResponse } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { Agent, request } from 'undici'
import { createGateway, openaiCompatible } from '../src/index.ts'
import { toNodeHandler } from '../src/node.ts'
import { printTable } from './report.ts'

const SECONDS = Number(process.env['BENCH_SECONDS'] ?? 8)
const TENANTS = 7
const EVERY_MS = 25

interface Started {
  readonly port: number
  readonly keys: readonly string[]
}

async function serveGateway(upstream: string): Promise<void> {
  const price = { input: 1, output: 2 }
  const models = [{ id: 'chat', price, contextWindow: 10_000_000, maxOutputTokens: 100 }]
  const providers = [openaiCompatible({ name: 'bench', baseUrl: upstream, models })]
  const gateway = createGateway({ providers, log: () => {} })
  const keys = await Promise.all(
    Array.from({ length: TENANTS + 1 }, (_, at) => gateway.keys.create({ name: `tenant ${at}` })),
  )
  const server = createServer(toNodeHandler(gateway)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  process.send?.({ port: (server.address() as AddressInfo).port, keys: keys.map(({ value }) => value) })
  process.on('disconnect', () => process.exit(0))
}

async function measure(): Promise<void> {
  const upstream = createServer((incoming, outgoing) => {
    const pieces: Buffer[] = []
    incoming.on('data', (piece: Buffer) => pieces.push(piece))
    incoming.on('end', () => answer(pieces[0]?.subarray(0, 400).toString() ?? '', outgoing))
  }).listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  const address = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/v1`
  const child = fork(fileURLToPath(import.meta.url), ['gateway', address], { execArgv: process.execArgv })
  const [started] = (await once(child, 'message')) as [Started]
  const [hostile = '', ...others] = started.keys
  const url = `http://127.0.0.1:${started.port}`

  await steadily(url, others, 2)
  const alone = await steadily(url, others, SECONDS)
  const attack = attackWith(url, started.port, hostile)
  const beside = await steadily(url, others, SECONDS)
  const sent = attack.stop()
  printTable([
    ['', 'requests', 'not 200', 'median ms', 'p99 ms', 'longest ms'],
    row('seven alone', alone),
    row('beside a hostile eighth', beside),
  ])
  console.log(`The hostile key sent ${sent} requests.`)
  child.disconnect()
  process.exit(0)
}

function answer(body: string, outgoing: ServerResponse): void {
  if (body.includes('HANG')) return
  const fails = body.includes('FAIL')
  outgoing.writeHead(fails ? 500 : 200, {
    'content-type': body.includes('"stream":true') ? 'text/event-stream' : 'application/json',
  })
  if (fails) return void outgoing.end('{"error":{"message":"No."}}')
  if (body.includes('"stream":true')) return void flood(outgoing)
  const message = { role: 'assistant', content: 'Yes.' }
  const usage = { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 }
  outgoing.end(
    JSON.stringify({ id: 'x', model: 'chat', choices: [{ index: 0, message, finish_reason: 'stop' }], usage }),
  )
}

const chunk = `data: ${JSON.stringify({ id: 'x', choices: [{ index: 0, delta: { content: 'word '.repeat(100) } }] })}\n\n`

/** 8 MB of a stream, as fast as they are taken. */
function flood(outgoing: ServerResponse): void {
  let left = 14_000
  const more = (): void => {
    while (left-- > 0) if (!outgoing.write(chunk)) return
    outgoing.end('data: [DONE]\n\n')
  }
  outgoing.on('drain', more)
  more()
}

interface Outcome {
  readonly status: number
  readonly ms: number
}

const ask = (content: string, rest = ''): string =>
  `{"model":"bench/chat","max_tokens":16${rest},"messages":[{"role":"user","content":${JSON.stringify(content)}}]}`

async function steadily(url: string, keys: readonly string[], seconds: number): Promise<readonly Outcome[]> {
  const dispatcher = new Agent({ connections: 50 })
  const running: Promise<Outcome>[] = []
  let number = 0
  const timer = setInterval(() => {
    for (const key of keys) running.push(send(key, `Question ${number++}?`))
  }, EVERY_MS)
  const send = async (key: string, content: string): Promise<Outcome> => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    const at = performance.now()
    const options = { method: 'POST', headers, body: ask(content), dispatcher } as const
    const { statusCode, body } = await request(`${url}/v1/chat/completions`, options)
    await body.text()
    return { status: statusCode, ms: performance.now() - at }
  }
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
  clearInterval(timer)
  const outcomes = await Promise.all(running)
  await dispatcher.close()
  return outcomes
}

function attackWith(url: string, port: number, key: string): { stop(): number } {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
  const image = {
    type: 'image_url',
    image_url: { url: `data:image/png;base64,${'iVBORw0KGgoAAAANSUhEUgAA'.repeat(120_000)}` },
  }
  const giant = Buffer.from(
    JSON.stringify({
      model: 'bench/chat',
      max_tokens: 16,
      messages: [{ role: 'user', content: Array(10).fill(image) }],
    }),
  )
  const items = Array.from({ length: 500 }, (_, at) => ({
    custom_id: `item-${at}`,
    params: { model: 'bench/chat', max_tokens: 16, messages: [{ role: 'user', content: 'HANG' }] },
  }))
  const batch = Buffer.from(JSON.stringify({ requests: items }))
  let isRunning = true
  let sent = 0
  const again = (path: string, body: string | Buffer, restMs: number): void => {
    if (!isRunning) return
    sent++
    const call = httpRequest(`${url}${path}`, { method: 'POST', headers }, (incoming) => {
      incoming.resume()
      incoming.on('end', () => setTimeout(() => again(path, body, restMs), restMs))
    })
    call.on('error', () => setTimeout(() => again(path, body, 1000), 1000))
    call.end(body)
  }
  const CHAT = '/v1/chat/completions'
  for (let at = 0; at < 20; at++) {
    again(CHAT, ask('HANG'), 10)
    again(CHAT, ask('FAIL'), 10)
    unread(port, key)
    sent++
  }
  again(CHAT, giant, 50)
  for (let at = 0; at < 4; at++) again('/v1/messages/batches', batch, 500)
  return {
    stop: () => {
      isRunning = false
      return sent
    },
  }
}

/** A client that asks for a long stream and reads nothing of it. */
function unread(port: number, key: string): void {
  const body = ask('Tell me everything.', ',"stream":true')
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  socket.pause()
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
}

function row(name: string, outcomes: readonly Outcome[]): string[] {
  const sorted = outcomes.map(({ ms }) => ms).toSorted((one, other) => one - other)
  const share = (part: number): string => (sorted[Math.floor(part * (sorted.length - 1))] ?? 0).toFixed(1)
  const failed = outcomes.filter(({ status }) => status !== 200).length
  return [name, String(outcomes.length), String(failed), share(0.5), share(0.99), share(1)]
}

if (process.argv[2] === 'gateway') await serveGateway(process.argv[3] ?? '')
else await measure()
