import { fork, type ChildProcess } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import Anthropic from '@anthropic-ai/sdk'
import { createGateway, type Gateway } from '../../../src/index.ts'
import { serve } from '../../../src/node.ts'
import { farmOptions } from './options.ts'
import { socketStore } from './socket-store.ts'

/** A gateway that takes batches and does no work, a store in a process of its own, and a worker that is killed. */
export interface Farm {
  readonly gateway: Gateway
  readonly keyId: string
  readonly client: Anthropic
  /** How often the upstream was asked. */
  asked(): number
  /** Resolves when the upstream has been asked so often. */
  askedSoOften(times: number): Promise<void>
  /** A worker, instead of the one there was, which is killed with SIGKILL. */
  replaceWorker(): Promise<void>
  /** The greatest resident sizes so far, in MiB: of all workers, and of the process that holds the store. */
  peaks(): { readonly worker: number; readonly store: number }
  close(): Promise<void>
}

export async function startFarm(): Promise<Farm> {
  const upstream = await startUpstream()
  const storeProcess = start('store-server', [])
  const port = await new Promise<number>((resolve) => {
    storeProcess.once('message', (message: { readonly port: number }) => resolve(message.port))
  })
  const gateway = createGateway(farmOptions(await socketStore(port), upstream.url, { concurrency: 0 }))
  const key = await gateway.keys.create({ name: 'farm', budget_limit_cents: 100_000, budget_reset_duration: '1M' })
  const server = await serve(gateway, { port: 0 })
  let worker: ChildProcess | undefined
  let workerPeak = 0
  const look = (): void => {
    workerPeak = Math.max(workerPeak, peakOf(worker))
  }
  return {
    gateway,
    keyId: key.id,
    client: new Anthropic({ baseURL: server.url, apiKey: key.value, maxRetries: 0, timeout: 120_000 }),
    asked: upstream.asked,
    askedSoOften: upstream.askedSoOften,
    replaceWorker: async () => {
      look()
      await kill(worker)
      worker = start('worker', [String(port), upstream.url])
    },
    peaks: () => {
      look()
      return { worker: workerPeak, store: peakOf(storeProcess) }
    },
    close: async () => {
      await kill(worker)
      await server.close()
      await gateway.close()
      await kill(storeProcess)
      await upstream.close()
    },
  }
}

function start(name: string, given: readonly string[]): ChildProcess {
  return fork(fileURLToPath(new URL(`./${name}.ts`, import.meta.url)), given, { execArgv: ['--import', 'tsx'] })
}

function kill(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return Promise.resolve()
  return new Promise((resolve) => {
    child.once('exit', () => resolve())
    child.kill('SIGKILL')
  })
}

/** What Linux remembers of a living process; 0 elsewhere. */
function peakOf(child: ChildProcess | undefined): number {
  try {
    const status = readFileSync(`/proc/${child?.pid}/status`, 'utf8')
    return Math.round(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) / 1024)
  } catch {
    return 0
  }
}

const ANSWER = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'model',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'Yes.' } }],
  usage: { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 },
})

async function startUpstream() {
  const waiting = new Map<() => void, number>()
  let asked = 0
  const server = createServer((incoming, response) => {
    incoming.resume().on('end', () => {
      asked += 1
      for (const [go, times] of waiting) if (asked >= times) go()
      response.writeHead(200, { 'content-type': 'application/json' }).end(ANSWER)
    })
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked: () => asked,
    askedSoOften: (times: number) =>
      new Promise<void>((resolve) => {
        if (asked >= times) resolve()
        else waiting.set(resolve, times)
      }),
    close: () =>
      new Promise<void>((resolve) => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
}
