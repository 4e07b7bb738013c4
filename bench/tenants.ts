/**
 * npm run bench:tenants: eight keys on one gateway, one of them hostile. Seven keys send small requests at a steady rate,
 * first alone and then during the attack: prompts that hang, prompts that make the upstream fail, streams that are not
 * read, bodies of 30 MB (four at a time), and batches that wait. Prints the statuses and latencies of the seven keys in
 * both phases. Gateway, upstream, clients and attacker run in separate processes. BENCH_ATTACK selects kinds of attack
 * (default: all).
 */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, request as httpRequest, type ServerResponse } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { constants, setPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import { Agent, request } from 'undici'
import { createGateway, openaiCompatible } from '../src/index.ts'
import { toNodeHandler } from '../src/node.ts'
import { printTable } from './report.ts'

const SECONDS = Number(process.env['BENCH_SECONDS'] ?? 8)
const isProfiled = process.env['BENCH_PROFILE'] !== undefined
const TENANTS = 7
const EVERY_MS = 25

interface Gateway {
  readonly url: string
  readonly pid: number
}

interface Started {
  readonly port: number
  readonly keys: readonly string[]
}

async function serveGateway(upstream: string): Promise<void> {
  const price = { input: 1, output: 2 }
  const models = [{ id: 'chat', price, contextWindowTokens: 10_000_000, maxOutputTokens: 100 }]
  const providers = [openaiCompatible({ name: 'bench', baseUrl: upstream, models })]
  const gateway = createGateway({ providers, log: () => {} })
  const keys = await Promise.all(
    Array.from({ length: TENANTS + 1 }, (_, index) => gateway.keys.create({ name: `tenant ${index}` })),
  )
  const server = createServer(toNodeHandler(gateway)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  process.send?.({ port: (server.address() as AddressInfo).port, keys: keys.map(({ value }) => value) })
}

/** Starts this file in another process. */
async function start<T>(role: string, ...rest: readonly string[]): Promise<{ child: ChildProcess; message: T }> {
  const child = fork(fileURLToPath(import.meta.url), [role, ...rest], {
    execArgv: [
      ...process.execArgv,
      ...(role === 'gateway' && isProfiled ? ['--cpu-prof', '--cpu-prof-dir=/tmp/prof'] : []),
    ],
  })
  const [message] = (await once(child, 'message')) as [T]
  return { child, message }
}

async function measure(): Promise<void> {
  const upstream = await start<string>('upstream')
  const gateway = await start<Started>('gateway', upstream.message)
  const { port, keys } = gateway.message
  const [hostile = '', ...others] = keys
  const target: Gateway = { url: `http://127.0.0.1:${port}`, pid: gateway.child.pid ?? 0 }

  await sendSteadily(target, others, 2)
  const alone = await sendSteadily(target, others, SECONDS)
  const attack = await start<string>('attacker', String(port), hostile)
  const underAttack = await sendSteadily(target, others, SECONDS)
  attack.child.send('stop')
  const [sent] = (await once(attack.child, 'message')) as [number]
  printTable([
    ['', 'requests', 'not 200', 'median ms', 'p99', 'longest', 'median ms of gateway CPU', 'p99', 'longest'],
    row('seven keys alone', alone),
    row('with a hostile key', underAttack),
  ])
  console.log(`The hostile key sent ${sent} requests.`)
  for (const { child } of [attack, gateway, upstream]) child.disconnect()
  process.exit(0)
}

async function serveUpstream(): Promise<void> {
  const server = createServer((incoming, outgoing) => {
    let first: Buffer | undefined
    incoming.on('data', (piece: Buffer) => (first ??= piece))
    incoming.on('end', () => response(first?.subarray(0, 400).toString() ?? '', outgoing))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`)
}

/** Runs the attacker at a lower priority than the other clients, as if it were on another machine. */
async function serveAttack(port: number, key: string): Promise<void> {
  setPriority(constants.priority.PRIORITY_BELOW_NORMAL)
  const attack = attackWith(`http://127.0.0.1:${port}`, port, key)
  process.send?.('started')
  await once(process, 'message')
  process.send?.(attack.stop())
}

function response(body: string, outgoing: ServerResponse): void {
  if (body.includes('HANG')) return
  const shouldFail = body.includes('FAIL')
  outgoing.writeHead(shouldFail ? 500 : 200, {
    'content-type': body.includes('"stream":true') ? 'text/event-stream' : 'application/json',
  })
  if (shouldFail) return void outgoing.end('{"error":{"message":"No."}}')
  if (body.includes('"stream":true')) return void writeLargeStream(outgoing)
  const message = { role: 'assistant', content: 'Yes.' }
  const usage = { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 }
  outgoing.end(
    JSON.stringify({ id: 'x', model: 'chat', choices: [{ index: 0, message, finish_reason: 'stop' }], usage }),
  )
}

const chunk = `data: ${JSON.stringify({ id: 'x', choices: [{ index: 0, delta: { content: 'word '.repeat(100) } }] })}\n\n`

/** Writes a stream of 8 MB as fast as the reader accepts it. */
function writeLargeStream(outgoing: ServerResponse): void {
  let remaining = 14_000
  const writeMore = (): void => {
    while (remaining-- > 0) if (!outgoing.write(chunk)) return
    outgoing.end('data: [DONE]\n\n')
  }
  outgoing.on('drain', writeMore)
  writeMore()
}

interface Outcome {
  readonly status: number
  readonly ms: number
  /** CPU time of the gateway's main thread between the request and the end of its response: the delay that it causes. */
  readonly cpuMs: number
}

/** Returns the CPU time of a process's main thread in milliseconds, or 0 without /proc. */
function cpuMsOf(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6
  } catch {
    return 0
  }
}

const ask = (content: string, rest = ''): string =>
  `{"model":"bench/chat","max_tokens":16${rest},"messages":[{"role":"user","content":${JSON.stringify(content)}}]}`

/** Sends one request at a time per key, so that requests that wait for the same key do not count as delay. */
async function sendSteadily(
  { url, pid }: Gateway,
  keys: readonly string[],
  seconds: number,
): Promise<readonly Outcome[]> {
  const dispatcher = new Agent({ connections: 50 })
  const end = performance.now() + seconds * 1000
  const send = async (key: string, content: string): Promise<Outcome> => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    const startedAt = performance.now()
    const cpuAt = cpuMsOf(pid)
    const options = { method: 'POST', headers, body: ask(content), dispatcher } as const
    const { statusCode, body } = await request(`${url}/v1/chat/completions`, options)
    await body.text()
    return { status: statusCode, ms: performance.now() - startedAt, cpuMs: cpuMsOf(pid) - cpuAt }
  }
  const outcomes: Outcome[] = []
  const sendRepeatedly = async (key: string): Promise<void> => {
    while (performance.now() < end) {
      outcomes.push(await send(key, `Question ${outcomes.length}?`))
      await setTimeout(EVERY_MS * 2 * Math.random())
    }
  }
  await Promise.all(keys.map(sendRepeatedly))
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
  const items = Array.from({ length: 500 }, (_, index) => ({
    custom_id: `item-${index}`,
    params: { model: 'bench/chat', max_tokens: 16, messages: [{ role: 'user', content: 'HANG' }] },
  }))
  const batch = Buffer.from(JSON.stringify({ requests: items }))
  let isRunning = true
  let sent = 0
  const sendRepeatedly = (path: string, body: string | Buffer, restMs: number): void => {
    if (!isRunning) return
    sent++
    const sendLater = (ms: number): void => void setTimeout(ms).then(() => sendRepeatedly(path, body, restMs))
    const call = httpRequest(`${url}${path}`, { method: 'POST', headers }, (incoming) => {
      incoming.resume()
      incoming.on('end', () => sendLater(restMs))
    })
    call.on('error', () => sendLater(1000))
    call.end(body)
  }
  const CHAT = '/v1/chat/completions'
  const kinds = process.env['BENCH_ATTACK']?.split(',') ?? ['hanging', 'failing', 'unread', 'giant', 'batches']
  for (let count = 0; count < 20; count++) {
    if (kinds.includes('hanging')) sendRepeatedly(CHAT, ask('HANG'), 10)
    if (kinds.includes('failing')) sendRepeatedly(CHAT, ask('FAIL'), 10)
    if (kinds.includes('unread')) openUnreadStream(port, key)
    sent++
  }
  for (let count = 0; count < 4; count++) if (kinds.includes('giant')) sendRepeatedly(CHAT, giant, 50)
  for (let count = 0; count < 4; count++)
    if (kinds.includes('batches')) sendRepeatedly('/v1/messages/batches', batch, 500)
  return {
    stop: () => {
      isRunning = false
      return sent
    },
  }
}

/** Requests a long stream and does not read it. */
function openUnreadStream(port: number, key: string): void {
  const body = ask('Tell me everything.', ',"stream":true')
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  socket.pause()
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
}

function row(name: string, outcomes: readonly Outcome[]): string[] {
  const failed = outcomes.filter(({ status }) => status !== 200).length
  const times = [outcomes.map(({ ms }) => ms), outcomes.map(({ cpuMs }) => cpuMs)]
  return [name, String(outcomes.length), String(failed), ...times.flatMap(percentiles)]
}

/** Returns the median, the 99th percentile and the maximum. */
function percentiles(values: readonly number[]): string[] {
  const sorted = values.toSorted((a, b) => a - b)
  return [0.5, 0.99, 1].map((share) => (sorted[Math.floor(share * (sorted.length - 1))] ?? 0).toFixed(1))
}

process.on('disconnect', () => process.exit(0))
const [role, ...rest] = process.argv.slice(2)
if (role === 'gateway') await serveGateway(rest[0] ?? '')
else if (role === 'upstream') await serveUpstream()
else if (role === 'attacker') await serveAttack(Number(rest[0]), rest[1] ?? '')
else await measure()
