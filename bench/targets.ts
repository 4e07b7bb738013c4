import { fork, type ChildProcess } from 'node:child_process'
import { createRequire } from 'node:module'
import { createServer, type AddressInfo } from 'node:net'
import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

/** A server in its own process, so that its CPU time can be measured. */
export interface Target {
  readonly name: TargetName
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** Sends a query to the process; `bench/servers/agent.ts` lists the queries. */
  readonly ask: (query: string, argument?: string) => Promise<number>
  readonly stop: () => void
}

interface ServerSpec {
  /** File in `bench/servers`, without the extension. */
  readonly server: string
  readonly mode?: string
}

const SERVERS = {
  relay: { server: 'relay' },
  'dispatch relay': { server: 'dispatch-relay' },
  'web relay': { server: 'web-relay' },
  portkey: { server: 'portkey' },
  ungoverned: { server: 'gateway', mode: 'ungoverned' },
  governed: { server: 'gateway', mode: 'governed' },
  default: { server: 'gateway', mode: 'default' },
  budget: { server: 'gateway', mode: 'budget' },
  customers: { server: 'gateway', mode: 'customers' },
} as const satisfies Readonly<Record<string, ServerSpec>>

export type TargetName = keyof typeof SERVERS

const compiled = fileURLToPath(new URL('./.build/', import.meta.url))

/**
 * Compiles the servers to JavaScript, so that no loader runs in the measured processes. The output is inside the package,
 * so that `sluice` resolves to the built package.
 */
export async function compileServers(): Promise<void> {
  const folder = fileURLToPath(new URL('./servers/', import.meta.url))
  await build({
    entryPoints: readdirSync(folder).map((name) => folder + name),
    outdir: compiled,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    bundle: true,
    packages: 'external',
  })
}

export async function startUpstream(): Promise<Omit<Target, 'name'>> {
  return start('upstream', [])
}

/** Returns false only for Portkey, which is not a dependency, if it cannot be found. */
export function isInstalled(name: TargetName): boolean {
  return name !== 'portkey' || portkeyPath() !== undefined
}

export async function startTarget(name: TargetName, upstreamUrl: string): Promise<Target> {
  const { server, mode = '' }: ServerSpec = SERVERS[name]
  const path = server === 'portkey' ? portkeyPath() : undefined
  return {
    name,
    ...(await (path === undefined ? start(server, [upstreamUrl, mode]) : startPortkey(path, upstreamUrl))),
  }
}

async function start(server: string, args: readonly string[]): Promise<Omit<Target, 'name'>> {
  const child = fork(`${compiled}${server}.js`, args, {
    execArgv: ['--expose-gc', ...(process.env['BENCH_NODE_FLAGS']?.split(' ') ?? [])],
  })
  const { port, key = 'none' } = await waitForReady(child)
  return {
    url: `http://127.0.0.1:${port}`,
    headers: { authorization: `Bearer ${key}` },
    ask: createAsk(child),
    stop: () => child.disconnect(),
  }
}

function waitForReady(child: ChildProcess): Promise<{ readonly port: number; readonly key?: string }> {
  return new Promise((resolve, reject) => {
    child.once('message', (message: { readonly ready: { readonly port: number } }) => resolve(message.ready))
    child.once('exit', (code) => reject(new Error(`A benchmark server exited with code ${code} before it was ready.`)))
  })
}

function createAsk(child: ChildProcess): Target['ask'] {
  let lastId = 0
  return (name, argument = '') =>
    new Promise((resolve, reject) => {
      const id = ++lastId
      const onExit = (code: number | null): void => reject(new Error(`A benchmark server exited with code ${code}.`))
      const onMessage = (response: { readonly id?: number; readonly value?: number }): void => {
        if (response.id !== id) return
        child.off('message', onMessage)
        child.off('exit', onExit)
        resolve(response.value ?? 0)
      }
      child.on('message', onMessage)
      child.once('exit', onExit)
      child.send({ id, name, argument })
    })
}

/** Returns the path of `@portkey-ai/gateway` in the project or in the folder BENCH_PORTKEY. */
function portkeyPath(): string | undefined {
  const folder = process.env['BENCH_PORTKEY']
  try {
    const require = createRequire(folder === undefined ? import.meta.url : `${folder}/package.json`)
    return require.resolve('@portkey-ai/gateway/build/start-server.js')
  } catch {
    return undefined
  }
}

async function startPortkey(path: string, upstreamUrl: string): Promise<Omit<Target, 'name'>> {
  const port = await freePort()
  const child = fork(path, [`--port=${port}`, '--headless'], {
    execArgv: ['--expose-gc', '--import', `${compiled}preload.js`],
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  })
  const url = `http://127.0.0.1:${port}`
  await waitUntilReady(url)
  return {
    url,
    headers: {
      authorization: 'Bearer none',
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': `${upstreamUrl}/v1`,
    },
    ask: createAsk(child),
    stop: () => child.disconnect(),
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo
      server.close(() => resolve(port))
    })
  })
}

async function waitUntilReady(url: string): Promise<void> {
  for (let attempt = 0; attempt < 100; attempt++) {
    try {
      await fetch(url)
      return
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
  throw new Error(`${url} did not respond within 10 s.`)
}
