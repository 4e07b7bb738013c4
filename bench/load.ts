import { fork, type ChildProcess } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'

/** A server of this bench in a process of its own, so that its processor time can be told apart. */
export interface Target {
  readonly name: string
  readonly url: string
  readonly key: string
  /** Microseconds of processor time so far, and bytes of memory. */
  readonly usage: () => Promise<{ readonly cpu: number; readonly rss: number }>
  readonly stop: () => void
}

export async function startTarget(name: string, file: string, ...given: readonly string[]): Promise<Target> {
  const path = fileURLToPath(new URL(`./servers/${file}.ts`, import.meta.url))
  // Without the paths of the project's tsconfig.json, so that `sluice` is the built package.
  const env = { ...process.env, TSX_TSCONFIG_PATH: fileURLToPath(new URL('./tsconfig.json', import.meta.url)) }
  const child = fork(path, given, { execArgv: ['--import', 'tsx'], env })
  const told = await allOf(child, file === 'gateway' ? ['port', 'key'] : ['port'])
  return {
    name,
    url: `http://127.0.0.1:${told['port']}`,
    key: String(told['key'] ?? 'none'),
    usage: async () => {
      child.send('cpu')
      const { cpu, rss } = await allOf(child, ['cpu'])
      return { cpu: Number(cpu), rss: Number(rss) }
    },
    stop: () => child.disconnect(),
  }
}

function allOf(child: ChildProcess, fields: readonly string[]): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    const told: Record<string, unknown> = {}
    const ended = (code: number | null): void => reject(new Error(`a server of the bench ended with code ${code}`))
    const listen = (message: unknown): void => {
      Object.assign(told, message)
      if (!fields.every((field) => field in told)) return
      child.off('message', listen)
      child.off('exit', ended)
      resolve(told)
    }
    child.on('message', listen)
    child.once('exit', ended)
  })
}

export interface Work {
  readonly body: string
  readonly requests: number
  readonly concurrency: number
  /** @default none */
  readonly headers?: Readonly<Record<string, string>>
}

export interface Measured {
  readonly perSecond: number
  /** Microseconds of the target's processor time for one request. */
  readonly cpu: number
  /** Milliseconds to the first byte of the body, median. */
  readonly firstByte: number
}

/** Sends so many requests, so many at a time, and reads every answer to its end. */
export async function measure(target: Target, work: Work): Promise<Measured> {
  const pool = new Pool(target.url, { connections: work.concurrency, pipelining: 1 })
  const before = await target.usage()
  const begun = performance.now()
  const firstBytes: number[] = []
  let left = work.requests
  const worker = async (): Promise<void> => {
    while (left-- > 0) firstBytes.push(await once(pool, target.key, work))
  }
  await Promise.all(Array.from({ length: work.concurrency }, worker))
  const seconds = (performance.now() - begun) / 1000
  const after = await target.usage()
  await pool.close()
  return {
    perSecond: work.requests / seconds,
    cpu: (after.cpu - before.cpu) / work.requests,
    firstByte: median(firstBytes),
  }
}

async function once(pool: Pool, key: string, { body, headers }: Work): Promise<number> {
  const begun = performance.now()
  const response = await pool.request({
    path: '/v1/chat/completions',
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}`, ...headers },
    body,
  })
  let first = 0
  for await (const _ of response.body) first ||= performance.now() - begun
  if (response.statusCode !== 200) throw new Error(`the bench got status ${response.statusCode}`)
  return first
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? 0
}
