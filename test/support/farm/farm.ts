import { fork, type ChildProcess } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import Anthropic from '@anthropic-ai/sdk'
import { createGateway, type Gateway } from '../../../src/index.ts'
import { serve } from '../../../src/node.ts'
import { bundlePrograms } from '../programs.ts'
import { farmOptions } from './options.ts'
import { socketStore } from './socket-store.ts'

/**
 * A gateway that accepts batches without processing them, a store in a separate process, and a worker that tests kill.
 */
export interface Farm {
  readonly gateway: Gateway
  readonly keyId: string
  readonly client: Anthropic
  /** Returns the number of upstream calls. */
  upstreamCalls(): number
  /** Resolves after this many upstream calls. */
  waitForUpstreamCalls(count: number): Promise<void>
  /** Kills the worker, if any, with SIGKILL and starts a new one. */
  replaceWorker(): Promise<void>
  /** Returns the peak resident sizes in MiB: the largest of all workers, and that of the store process. */
  peaks(): { readonly worker: number; readonly store: number }
  close(): Promise<void>
}

export async function startFarm(): Promise<Farm> {
  const upstream = await startUpstream()
  const programs = await bundlePrograms({ store: sourceOf('store-server'), worker: sourceOf('worker') })
  const start = (name: string, args: readonly string[]): ChildProcess =>
    fork(programs.fileOf(name), args, { execArgv: [] })
  const storeProcess = start('store', [])
  const port = await new Promise<number>((resolve) => {
    storeProcess.once('message', (message: { readonly port: number }) => resolve(message.port))
  })
  const gateway = createGateway(farmOptions(await socketStore(port), upstream.url, { concurrency: 0 }))
  const key = await gateway.keys.create({ name: 'farm', budget_limit_cents: 100_000, budget_reset_duration: '1M' })
  const server = await serve(gateway, { port: 0 })
  let worker: ChildProcess | undefined
  let workerPeak = 0
  const updatePeak = (): void => {
    workerPeak = Math.max(workerPeak, peakOf(worker))
  }
  return {
    gateway,
    keyId: key.id,
    client: new Anthropic({ baseURL: server.url, apiKey: key.value, maxRetries: 0, timeout: 120_000 }),
    upstreamCalls: upstream.calls,
    waitForUpstreamCalls: upstream.waitForCalls,
    replaceWorker: async () => {
      updatePeak()
      await kill(worker)
      worker = start('worker', [String(port), upstream.url])
    },
    peaks: () => {
      updatePeak()
      return { worker: workerPeak, store: peakOf(storeProcess) }
    },
    close: async () => {
      await kill(worker)
      await server.close()
      await gateway.close()
      await kill(storeProcess)
      await upstream.close()
      await programs.remove()
    },
  }
}

function sourceOf(name: string): { readonly file: string } {
  return { file: fileURLToPath(new URL(`./${name}.ts`, import.meta.url)) }
}

function kill(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return Promise.resolve()
  return new Promise((resolve) => {
    child.once('exit', () => resolve())
    child.kill('SIGKILL')
  })
}

/** Reads the peak resident size of a running process on Linux; returns 0 elsewhere. */
function peakOf(child: ChildProcess | undefined): number {
  try {
    const status = readFileSync(`/proc/${child?.pid}/status`, 'utf8')
    return Math.round(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) / 1024)
  } catch {
    return 0
  }
}

const RESPONSE = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'model',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'Yes.' } }],
  usage: { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 },
})

async function startUpstream() {
  const waiting = new Map<() => void, number>()
  let calls = 0
  const server = createServer((incoming, response) => {
    incoming.resume().on('end', () => {
      calls += 1
      for (const [resolve, count] of waiting) if (calls >= count) resolve()
      response.writeHead(200, { 'content-type': 'application/json' }).end(RESPONSE)
    })
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    calls: () => calls,
    waitForCalls: (count: number) =>
      new Promise<void>((resolve) => {
        if (calls >= count) resolve()
        else waiting.set(resolve, count)
      }),
    close: () =>
      new Promise<void>((resolve) => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
}
