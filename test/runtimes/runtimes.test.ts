/** @own-process: takes long, and starts many processes. */
import { execFile, spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildEvents, startUpstream, type Upstream } from '../support/upstream.ts'
import { buildProject } from './build-package.ts'
import { RUNTIMES, skipMissing, WORKERD, type InstalledRuntime } from './runtimes.ts'

const execute = promisify(execFile)
const all = [...RUNTIMES, WORKERD]
const missing = all.filter(({ command }) => command === undefined).map(({ name }) => name)
if (missing.length > 0) {
  const install = 'npm install --prefix .ci/runtimes --no-save --ignore-scripts'
  process.stdout.write(`Skipped: the tests on ${missing.join(', ')}. Install them with: ${install}\n`)
}

let project: string

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'sluice-runtimes-'))
  if (missing.length < all.length) await buildProject(project)
}, 240_000)

afterAll(() => rm(project, { recursive: true, force: true }))

describe.each(all)('$name', (runtime) => {
  const { command } = runtime
  if (command === undefined) {
    skipMissing()
    return
  }
  let upstream: Upstream
  let url: string
  let close: () => void = () => {}

  beforeAll(async () => {
    upstream = await startUpstream()
    ;({ url, close } = await startServer(runtime, command, upstream))
  }, 120_000)

  afterAll(async () => {
    close()
    await upstream.close()
  })

  const client = async (): Promise<OpenAI> => {
    const apiKey = await (await fetch(`${url}/key`)).text()
    return new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 })
  }
  const prompt = { model: 'chat/large', messages: [{ role: 'user' as const, content: 'Hello there.' }] }

  it('the handler sees the method, the path, the query and the headers', async () => {
    const response = await fetch(`${url}/behavior/json?limit=2&after=a%2Fb`, {
      method: 'DELETE',
      headers: { 'x-mark': 'y' },
    })

    expect(await response.json()).toEqual(['DELETE', '/behavior/json', 'limit=2&after=a%2Fb', 'y'])
  })

  it('a body of 5 MB arrives byte for byte', async () => {
    const body = new Uint8Array(5_000_000).map((_, index) => index % 251)

    const response = await fetch(`${url}/behavior/echo`, { method: 'POST', body })

    expect(Buffer.compare(Buffer.from(await response.arrayBuffer()), body)).toBe(0)
  })

  it('status, headers and text arrive, and HEAD gets the headers alone', async () => {
    const whole = await fetch(`${url}/behavior/whole`)
    const head = await fetch(`${url}/behavior/whole`, { method: 'HEAD' })
    const empty = await fetch(`${url}/behavior/empty`)

    expect([whole.status, whole.headers.get('retry-after'), await whole.text()]).toEqual([429, '7', 'café 漢'])
    expect([head.status, head.headers.get('retry-after'), await head.text()]).toEqual([429, '7', ''])
    expect([empty.status, await empty.text()]).toEqual([204, ''])
  })

  it('an invalid response header causes a 500', async () => {
    expect((await fetch(`${url}/behavior/bad-header`)).status).toBe(500)
  })

  // Miniflare's own proxy ends the response of a Worker that failed as if it were whole.
  it.skipIf(runtime === WORKERD)('a stream that fails in the middle breaks the connection', async () => {
    const response = await fetch(`${url}/behavior/break`)

    await expect(response.text()).rejects.toThrow()
  })

  it('a client that reads late receives the whole stream', async () => {
    const incoming = await open(`${url}/behavior/pour`)
    let received = 0
    for await (const chunk of incoming) received += (chunk as Buffer).byteLength

    expect(received).toBe(100 * 64 * 1024)
  })

  it('answers a request with the answer of the upstream', async () => {
    upstream.reply = () => 'Hello from upstream.'

    const response = await (await client()).chat.completions.create(prompt)

    expect(response.choices[0]?.message.content).toBe('Hello from upstream.')
    expect(upstream.last.body['messages']).toEqual(prompt.messages)
  })

  it('forwards each piece of a stream as it arrives', async () => {
    let go: (value?: unknown) => void = () => {}
    const gate = new Promise((resolve) => (go = resolve))
    upstream.reply = (request) => {
      const [first, ...rest] = buildEvents(request, { text: ['one ', 'two'] })
      if (first === undefined) throw new Error('The upstream has no frames')
      return { kind: 'events', items: [first, ...rest.slice(0, 1), gate, ...rest.slice(1)] }
    }

    const stream = await (await client()).chat.completions.create({ ...prompt, stream: true })
    let text = ''
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? ''
      // The upstream sends the rest only after the first piece is received.
      if (text !== '') go()
    }

    expect(text).toBe('one two')
  })

  it('ends the call to the upstream when the client disconnects', async () => {
    upstream.reply = (request) => ({
      kind: 'events',
      items: [...buildEvents(request, { text: ['one ', 'two'] }).slice(0, 2), new Promise(() => {})],
    })

    const stream = await (await client()).chat.completions.create({ ...prompt, stream: true })
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content !== undefined) break
    stream.controller.abort()

    await upstream.last.aborted
  })

  it('returns the documented status when the upstream is unreachable', async () => {
    upstream.reply = () => ({ kind: 'cut' })

    await expect((await client()).chat.completions.create(prompt)).rejects.toMatchObject({ status: 502 })
  })

  it.skipIf(runtime === WORKERD)('a request in flight keeps the process alive during a retry', async () => {
    const { args } = runtime
    upstream.reply = ({ index }) => {
      upstream.reply = () => 'Hello after a retry.'
      return { kind: 'failure', status: index >= 0 ? 500 : 200 }
    }

    const { stdout } = await execute(command, [...args, join(project, 'retry.js'), upstream.baseUrl], { cwd: project })

    expect(stdout).toBe('200 Hello after a retry.\n')
  })
})

async function startServer(
  runtime: InstalledRuntime,
  command: string,
  upstream: Upstream,
): Promise<{ readonly url: string; readonly close: () => void }> {
  const bundle = runtime === WORKERD ? [await bundleWorker(upstream)] : []
  const file = join(project, runtime.server)
  const child = spawn(command, [...runtime.args, file, upstream.baseUrl, ...bundle], {
    cwd: project,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const lines = createInterface(child.stdout)
  const url = await new Promise<string>((resolve, reject) => {
    lines.once('line', resolve)
    child.once('exit', (code) => reject(new Error(`${runtime.name} ended with exit code ${code}`)))
  })
  return { url, close: () => child.kill() }
}

async function bundleWorker(upstream: Upstream): Promise<string> {
  const outfile = join(project, 'worker-bundle.mjs')
  await build({
    entryPoints: [join(project, 'worker.js')],
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'browser',
    conditions: ['workerd', 'worker'],
    define: { UPSTREAM_URL: JSON.stringify(upstream.baseUrl) },
  })
  return outfile
}

/** Sends a GET request and returns the unread response. */
function open(url: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    httpRequest(url, resolve).on('error', reject).end()
  })
}
