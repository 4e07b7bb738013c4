import { pathToFileURL } from 'node:url'
import { Worker } from 'node:worker_threads'
import type { WorkerReply, WorkerSettings } from './embedder-worker.ts'

/** A thread that holds the model. It embeds one list of texts at a time. */
export interface ModelWorker {
  run(texts: readonly string[]): Promise<readonly Float32Array[]>
  /** Rejects the run in progress with the error. */
  stop(error: Error): Promise<void>
}

export type StartWorker = (settings: WorkerSettings, onExit: () => void) => ModelWorker

/** CommonJS has no `import.meta.url`. */
const here: string = typeof __filename === 'string' ? pathToFileURL(__filename).href : import.meta.url

/** Starts a thread that runs the file `embedder-worker.js` of the package. */
export const startWorker: StartWorker = (settings, onExit) =>
  startWorkerAt(new URL('./embedder-worker.js', here), settings, onExit)

export function startWorkerAt(url: URL, settings: WorkerSettings, onExit: () => void): ModelWorker {
  const worker = new Worker(url, { workerData: settings, name: 'sluice-embedder' })
  // Does not keep the process running between calls.
  worker.unref()
  let running: { resolve(vectors: readonly Float32Array[]): void; reject(error: Error): void } | undefined
  let isStopped = false
  const settle = (reply: WorkerReply): void => {
    const settled = running
    running = undefined
    worker.unref()
    if ('vectors' in reply) settled?.resolve(reply.vectors)
    else settled?.reject(new Error(`localEmbedder: ${reply.error}`))
  }
  const fail = (error: Error): void => {
    isStopped = true
    running?.reject(error)
    running = undefined
    onExit()
  }
  worker.on('message', settle)
  worker.on('messageerror', fail)
  worker.on('error', fail)
  worker.on('exit', (code) => {
    if (!isStopped) fail(new Error(`localEmbedder: the thread of the model ended with the exit code ${code}.`))
  })
  return {
    run: (texts) =>
      new Promise((resolve, reject) => {
        running = { resolve, reject }
        worker.ref()
        worker.postMessage(texts)
      }),
    stop: async (error) => {
      if (!isStopped) fail(error)
      await worker.terminate()
    },
  }
}
