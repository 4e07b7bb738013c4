/**
 * Runs the lines in the table "Mount it" of the README on each runtime.
 * @own-process: takes long, and starts many processes.
 */
import { execFile, spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildEvents, startUpstream, type Upstream } from '../support/upstream.ts'
import { buildProject } from './build-package.ts'
import { writeMountPrograms } from './mount-programs.ts'
import { HAS_FRAMEWORKS, NEXT, RUNTIMES, skipMissing, WORKERD } from './runtimes.ts'

interface Mount {
  readonly name: string
  /** Undefined if the runtime is not installed. */
  readonly command: string | undefined
  readonly args: readonly string[]
  /** The paths of the gateway on each address that the program prints. @default [''] */
  readonly paths?: readonly string[]
  /** True if the program has to be prepared by a build, which returns its arguments. */
  readonly prepare?: () => Promise<readonly string[]>
}

const command = (name: string): string | undefined => RUNTIMES.find((runtime) => runtime.name === name)?.command
const node = process.execPath

const mounts: readonly Mount[] = [
  ...RUNTIMES.filter(({ name }) => name.startsWith('Node')).map((runtime) => ({
    name: `serve, toNodeHandler, toExpress and toFastify on ${runtime.name}`,
    command: runtime.command,
    args: ['node-mounts.js'],
  })),
  { name: 'export default on Bun', command: command('Bun'), args: ['run', 'web.js'] },
  { name: 'Bun.serve', command: command('Bun'), args: ['run', 'bun-serve.js'] },
  {
    name: 'export default on Deno',
    command: command('Deno'),
    args: ['serve', '--port=0', '--host=127.0.0.1', '--allow-all', '--node-modules-dir=manual', 'web.js'],
  },
  {
    name: 'export default on workerd',
    command: WORKERD.command,
    args: [],
    prepare: async () => [WORKERD.server, '', await bundleWorker()],
  },
  { name: 'Hono', command: HAS_FRAMEWORKS ? node : undefined, args: ['hono.js'] },
  { name: 'h3', command: HAS_FRAMEWORKS ? node : undefined, args: ['h3.js'] },
  {
    name: 'Next.js',
    command: NEXT === undefined ? undefined : node,
    args: [],
    paths: ['/nodejs', '/edge'],
    prepare: async () => {
      await promisify(execFile)(node, [NEXT ?? '', 'build'], { cwd: project, env })
      return [NEXT ?? '', 'start', '--port', '0', '--hostname', '127.0.0.1']
    },
  },
]
const env = { ...process.env, PORT: '0', NEXT_TELEMETRY_DISABLED: '1', NODE_ENV: 'production' as const }
const headers = {
  'content-type': 'application/json',
  authorization: 'Bearer a-secret-of-48-letters-made-for-this-test-alone-',
}

let project: string
let upstream: Upstream

beforeAll(async () => {
  upstream = await startUpstream()
  project = await mkdtemp(join(tmpdir(), 'sluice-mounts-'))
  await buildProject(project)
  await writeMountPrograms(project, upstream.baseUrl)
}, 240_000)

afterAll(async () => {
  await upstream.close()
  await rm(project, { recursive: true, force: true })
})

describe.each(mounts)('$name', (mount) => {
  if (mount.command === undefined) {
    skipMissing()
    return
  }
  let urls: readonly string[]
  let output: () => string
  let close: () => void = () => {}

  beforeAll(async () => {
    ;({ urls, output, close } = await start(mount, mount.command ?? ''))
  }, 240_000)
  afterAll(() => close())

  const ask = (url: string, body: object, init: RequestInit = {}): Promise<Response> =>
    fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify(body), ...init })

  it('serves each path, also with a body of 800 KB', async () => {
    for (const url of urls) {
      const fact = 'A sluice is a gate for water.'
      const content = `${`${fact} `.repeat(28_000)}What is a sluice?`
      const models = await fetch(`${url}/v1/models`, { headers })
      const response = await ask(url, { model: 'extractive/extractive', messages: [{ role: 'user', content }] })

      expect([url, models.status, response.status]).toEqual([url, 200, 200])
      expect(await response.json()).toMatchObject({ choices: [{ message: { content: fact } }] })
    }
  }, 60_000)

  it('ends the call to the upstream when the client disconnects', async () => {
    upstream.reply = (request) => ({
      kind: 'events',
      items: [...buildEvents(request, { text: ['one ', 'two'] }).slice(0, 2), new Promise(() => {})],
    })
    for (const url of urls) {
      const caller = new AbortController()
      const messages = [{ role: 'user', content: 'Hello there.' }]
      const response = await ask(url, { model: 'chat/large', stream: true, messages }, { signal: caller.signal })
      await response.body?.getReader().read()
      caller.abort()

      await upstream.last.aborted
    }
    // Next prints this error itself on the Edge Runtime, for every route.
    if (mount.name !== 'Next.js') expect(output()).not.toContain('Error')
  }, 60_000)

  // Next closes the connection of an upgrade itself, without a response.
  it.skipIf(mount.name === 'Next.js')('refuses a WebSocket upgrade with 426', async () => {
    for (const url of urls) expect([url, await statusOfUpgrade(`${url}/v1/responses`)]).toEqual([url, 426])
  })
})

/** Starts a program and waits until it prints its addresses. */
async function start(
  { name, args, paths = [''], prepare }: Mount,
  file: string,
): Promise<{ readonly urls: readonly string[]; readonly output: () => string; readonly close: () => void }> {
  const child = spawn(file, [...args, ...((await prepare?.()) ?? [])], { cwd: project, env })
  let output = ''
  const urls = await new Promise<readonly string[]>((resolve, reject) => {
    const read = (text: Buffer): void => {
      output += text.toString()
      const line = output.match(/^.*https?:\/\/(?:127\.0\.0\.1|localhost).*\n/m)?.[0]
      if (line !== undefined) resolve(line.match(/http:\S+/g) ?? [])
    }
    child.stdout.on('data', read)
    child.stderr.on('data', read)
    child.once('exit', (code) => reject(new Error(`${name} ended with exit code ${code}: ${output}`)))
  })
  const all = urls.flatMap((url) => paths.map((path) => url.replace(/\/$/, '') + path))
  return { urls: all, output: () => output, close: () => child.kill() }
}

async function bundleWorker(): Promise<string> {
  const outfile = join(project, 'web-bundle.mjs')
  await build({
    entryPoints: [join(project, 'web.js')],
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'browser',
    conditions: ['workerd', 'worker'],
  })
  return outfile
}

function statusOfUpgrade(url: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' }
    const key = { 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' }
    httpRequest(url, { headers: { ...upgrade, ...key } }, (incoming) => resolve(incoming.resume().statusCode))
      .on('error', reject)
      .end()
  })
}
