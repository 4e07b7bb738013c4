import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

/** A server for tests: one that an environment variable names, or a new local one. */
export interface TestServer {
  /** Resolves with the URL when the server accepts connections. */
  readonly start: () => Promise<string>
  readonly stop: () => Promise<void>
}

const START_MS = 60_000

/**
 * Returns the Redis server at REDIS_URL, or one that starts the binary on the PATH. Prints a notice if neither exists.
 */
export function redisServer(variable: 'REDIS_URL' | 'REDIS8_URL' | 'VALKEY_URL' = 'REDIS_URL'): TestServer | undefined {
  const url = process.env[variable]
  if (url !== undefined && url !== '') return external(url)
  if (variable === 'REDIS_URL' && isOnPath('redis-server')) return localRedis()
  return reportSkipped(variable, variable === 'REDIS_URL' ? ' and redis-server is not on the PATH' : '')
}

/** Returns a node of the cluster at REDIS_CLUSTER_URL. */
export function redisCluster(): TestServer | undefined {
  const url = process.env['REDIS_CLUSTER_URL']
  return url === undefined || url === '' ? reportSkipped('REDIS_CLUSTER_URL') : external(url)
}

/**
 * Returns the PostgreSQL server at DATABASE_URL, or one that starts the binaries on the PATH, which do not run as root.
 */
export function postgresServer(): TestServer | undefined {
  const url = process.env['DATABASE_URL']
  if (url !== undefined && url !== '') return external(url)
  if (process.getuid?.() !== 0 && isOnPath('initdb') && isOnPath('postgres')) return localPostgres()
  return reportSkipped('DATABASE_URL', ' and no PostgreSQL server can be started')
}

function external(url: string): TestServer {
  return { start: async () => url, stop: async () => {} }
}

function reportSkipped(variable: string, more = ''): undefined {
  process.stdout.write(`Skipped: tests that need ${variable}. It is not set${more}.\n`)
}

export function isOnPath(name: string): boolean {
  try {
    execFileSync('which', [name], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

function localRedis(): TestServer {
  return localServer(async (directory, port) => {
    const options = ['--port', String(port), '--bind', '127.0.0.1', '--dir', directory, '--save', '']
    return { child: spawn('redis-server', options, { stdio: 'ignore' }), url: `redis://127.0.0.1:${port}` }
  })
}

/** Creates a Redis server that loses no confirmed write. Tests end it with SIGKILL and restart it on the same port. */
export function restartableRedis(): {
  readonly start: () => Promise<number>
  readonly kill: () => Promise<void>
  readonly remove: () => Promise<void>
} {
  const directory = mkdtempSync(join(tmpdir(), 'sluice-server-'))
  let port: number | undefined
  let child: ChildProcess | undefined
  const kill = async (): Promise<void> => {
    const ended = child === undefined || new Promise((resolve) => child?.once('exit', resolve))
    child?.kill('SIGKILL')
    await ended
    child = undefined
  }
  return {
    start: async () => {
      port ??= await freePort()
      const options = ['--port', String(port), '--bind', '127.0.0.1', '--dir', directory, '--save', '']
      child = spawn('redis-server', [...options, '--appendonly', 'yes', '--appendfsync', 'always'], { stdio: 'ignore' })
      await waitUntilOpen(port)
      return port
    },
    kill,
    remove: async () => {
      await kill()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

function localPostgres(): TestServer {
  return localServer(async (directory, port) => {
    const data = join(directory, 'data')
    execFileSync('initdb', ['-D', data, '-U', 'sluice', '-A', 'trust', '-E', 'UTF8'], { stdio: 'ignore' })
    const settings = ['-c', 'listen_addresses=127.0.0.1', '-c', `unix_socket_directories=${directory}`]
    const child = spawn('postgres', ['-D', data, '-p', String(port), ...settings], { stdio: 'ignore' })
    return { child, url: `postgres://sluice@127.0.0.1:${port}/postgres` }
  })
}

interface Started {
  readonly child: ChildProcess
  readonly url: string
}

function localServer(launch: (directory: string, port: number) => Promise<Started>): TestServer {
  const directory = mkdtempSync(join(tmpdir(), 'sluice-server-'))
  let child: ChildProcess | undefined
  return {
    start: async () => {
      const port = await freePort()
      const started = await launch(directory, port)
      child = started.child
      await waitUntilOpen(port)
      return started.url
    },
    stop: async () => {
      const ended = child === undefined || new Promise((resolve) => child?.once('exit', resolve))
      child?.kill()
      await ended
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return typeof address === 'object' && address !== null ? address.port : 0
}

async function waitUntilOpen(port: number): Promise<void> {
  const { connect } = await import('node:net')
  const deadline = Date.now() + START_MS
  for (;;) {
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true))
      socket.once('error', () => resolve(false)).once('connect', () => socket.destroy())
    })
    if (isOpen) return
    if (Date.now() > deadline) throw new Error(`No server listens on port ${port} after ${START_MS} ms.`)
    await pause(50)
  }
}
