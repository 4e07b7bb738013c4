/** @own-process: starts a process per example, and sets an environment variable. */
import { execFile, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { prepareExamples, type ExamplePrograms } from './support/example-programs.ts'
import { IS_FULL } from './support/full.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const question = {
  model: 'extractive/extractive',
  max_tokens: 100,
  messages: [{ role: 'user', content: 'A sluice is a gate for water. What is a sluice?' }],
}

const servers = ['node', 'express', 'fastify']
let programs: ExamplePrograms
beforeAll(async () => {
  const recipes = servers.map((name) => `cors/${name}`)
  programs = await prepareExamples([...servers, ...recipes, 'batches', 'demo', 'restart'])
})
afterAll(() => programs.remove())

interface Started {
  /** The `/v1` address of the gateway, without a trailing slash. */
  readonly url: string
  readonly key: string
  /** Sends SIGTERM and resolves with the exit code, which is 143 if the process does not handle the signal. */
  readonly stop: () => Promise<number | null>
}

/** Runs an example on a free port until it prints its address and key. */
async function start(name: string): Promise<Started> {
  const env = { ...process.env, PORT: '0' }
  const child = spawn(process.execPath, programs.argumentsOf(name), { cwd: root, env })
  const ended = new Promise<number | null>((resolve) => {
    // As tsx and shells report a signal.
    child.once('exit', (code, signal) => resolve(signal === 'SIGTERM' ? 143 : code))
  })
  let said = ''
  const address = await new Promise<RegExpMatchArray>((resolve, reject) => {
    const listen = (text: Buffer): void => {
      said += text.toString()
      const match = /(http:\S+) with the key (\S+)/.exec(said)
      if (match !== null) resolve(match)
    }
    child.stdout.on('data', listen)
    child.stderr.on('data', listen)
    void ended.then(() => reject(new Error(`The example ended before it listened: ${said}`)))
  })
  const stop = (): Promise<number | null> => {
    child.kill('SIGTERM')
    return ended
  }
  return { url: address[1] ?? '', key: address[2] ?? '', stop }
}

/** Runs an example to its end, and returns what it prints. */
async function run(name: string): Promise<string> {
  const env = { ...process.env, PORT: '0' }
  const { stdout } = await promisify(execFile)(process.execPath, [...programs.argumentsOf(name)], { cwd: root, env })
  return stdout
}

function ask(url: string, key: string): Request {
  return new Request(`${url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(question),
  })
}

/** Checks the CORS headers of a preflight, a response and an error for a page of another origin. */
async function crossOrigin(url: string, key: string, send: typeof fetch = fetch): Promise<void> {
  const preflightHeaders = { origin: 'https://app.example.com', 'access-control-request-method': 'POST' }
  const preflight = await send(`${url}/chat/completions`, {
    method: 'OPTIONS',
    headers: { ...preflightHeaders, 'access-control-request-headers': 'authorization,content-type,x-stainless-os' },
  })
  const responded = await send(ask(url, key))
  const rejected = await send(ask(url, 'sk-bf-wrong'))

  expect(preflight.status).toBe(204)
  expect(preflight.headers.get('access-control-allow-headers')).toBe('authorization,content-type,x-stainless-os')
  expect(preflight.headers.get('access-control-allow-methods')).toContain('POST')
  expect([responded.status, rejected.status]).toEqual([200, 401])
  for (const { headers } of [preflight, responded, rejected]) {
    expect(headers.get('access-control-allow-origin')).toBe('https://app.example.com')
    expect(headers.get('access-control-expose-headers')).toBe('*')
  }
}

describe('the CORS recipes', () => {
  it.each(servers)(
    'let a page of another origin call the gateway in %s',
    async (name) => {
      const { url, key, stop } = await start(`cors/${name}`)
      try {
        await crossOrigin(url, key)
      } finally {
        await stop()
      }
    },
    60_000,
  )

  it('let a page of another origin call the gateway in next', async () => {
    const key = 'a-secret-of-48-letters-made-for-this-test-alone-'
    process.env['GATEWAY_KEY'] = key
    const routes = await import('../examples/cors/next.ts')
    const send = async (input: Request | string | URL, init?: RequestInit): Promise<Response> => {
      const request = new Request(input, init)
      return request.method === 'OPTIONS' ? routes.OPTIONS(request) : routes.POST(request)
    }

    await crossOrigin('https://gateway.example/ai/v1', key, send)
  })

  it('are the code that docs/cors.md shows', () => {
    const page = readFileSync(`${root}/docs/cors.md`, 'utf8')
    const shown = [...page.matchAll(/```ts\n([\s\S]*?)```/g)].map((match) => match[1] ?? '')
    const programs = ['node', 'express', 'fastify', 'next'].map((name) =>
      readFileSync(`${root}/examples/cors/${name}.ts`, 'utf8'),
    )

    expect(shown.map((code, index) => programs[index]?.includes(code))).toEqual([true, true, true, true])
  })
})

describe('the examples', () => {
  it.each(servers)(
    '%s listens, answers with a bill, and ends on a signal',
    async (name) => {
      const { url, key, stop } = await start(name)
      const response = await fetch(ask(url, key))
      const body = await response.json()
      const code = await stop()

      expect(response.status).toBe(200)
      expect(response.headers.get('x-svc-billed-amount')).toMatch(/\d/)
      expect(body).toMatchObject({ choices: [{ message: { role: 'assistant' } }] })
      expect(code).toBe(name === 'node' ? 0 : 143)
    },
    60_000,
  )

  it.each(['express', 'fastify'])(
    'in %s the routes of the application still parse their bodies',
    async (name) => {
      const { url, stop } = await start(name)
      const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"a":1}' }
      const response = await fetch(new URL('/echo', url), init)
      const echoed = await response.json()
      await stop()

      expect(echoed).toEqual({ a: 1 })
    },
    60_000,
  )

  it('the batch is processed to its results', async () => {
    const stdout = await run('batches')

    for (const body of ['A sluice is a gate', 'A weir is a low dam', 'A lock lifts ships']) {
      expect(stdout).toContain(body)
    }
  }, 60_000)

  // A step of .ci/run also runs it.
  it.runIf(IS_FULL)(
    'the demo prints at most 60 lines of 100 columns',
    async () => {
      const stdout = await run('demo')

      const lines = stdout.split('\n')
      expect(lines.length).toBeLessThanOrEqual(60)
      expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(100)
      expect(stdout).toMatch(/served [1-9]\d*, rejected with 402: \d+\n/)
      expect(stdout).toMatch(/MISS .*2 nights\?\n {3}HIT .*2 nights, please\?\n {3}MISS .*3 nights\?/)
      expect(stdout.match(/5 of 5/g)).toHaveLength(5)
      expect(stdout).toContain('resumed  "in the morning. The gate of the lock closes at nine in the evening."')
    },
    60_000,
  )

  it.runIf(IS_FULL)(
    'the SaaS product starts with its demo data, and ends on a signal',
    async () => {
      const tsx = `${root}/node_modules/tsx/dist/cli.mjs`
      const env = { ...process.env, PORT: '0' }
      const child = spawn(process.execPath, [tsx, 'examples/saas/server.ts'], { cwd: root, env })
      const ended = new Promise((resolve) => child.once('exit', resolve))
      const url = await new Promise<string>((resolve) =>
        child.stdout.on('data', (text: Buffer) => {
          resolve(text.toString().trim())
        }),
      )
      const response = await fetch(`${url}/login`)
      child.kill('SIGTERM')
      await response.text()

      expect(response.status).toBe(200)
      expect(await ended).toBe(0)
    },
    60_000,
  )

  it('a limit, the usage and the audit survive a restart', async () => {
    const stdout = await run('restart')

    expect(stdout).toBe('before: 200 200\nafter the restart: 200 429\nusage: 3 requests, 4 audit records\n')
  }, 60_000)

  it('the route of next answers the requests of Next', async () => {
    const key = 'a-secret-of-48-letters-made-for-this-test-alone-'
    process.env['GATEWAY_KEY'] = key
    const { POST, GET } = await import('../examples/next.ts')

    const responded = await POST(ask('https://app.example/ai/v1', key))
    const rejected = await GET(new Request('https://app.example/ai/v1/models'))

    expect([responded.status, rejected.status]).toEqual([200, 401])
  })

  it('the worker answers', async () => {
    const { default: worker } = await import('../examples/workers.ts')

    const response = await worker.fetch(ask('https://worker.example/v1', 'sk-svc-7d0c3f52-1f5b-4c57-9d0e-0a4c7f3b9e11'))

    expect(response.status).toBe(200)
  })
})
