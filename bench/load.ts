import { Pool } from 'undici'
import type { Target } from './targets.ts'

export interface Work {
  /** The body of the request with this index; the first is 0 and no index comes twice for one target. */
  readonly body: (index: number) => string
  readonly headers?: Readonly<Record<string, string>>
  readonly concurrency: number
}

export interface Sent {
  readonly seconds: number
  /** Milliseconds to the first byte of the body, median. */
  readonly firstByte: number
}

/** Sends requests with the indices from `from` until before `to` and reads each answer to its end. */
export async function send(target: Target, work: Work, from: number, to: number): Promise<Sent> {
  const pool = new Pool(target.url, { connections: work.concurrency, pipelining: 1 })
  const headers = { 'content-type': 'application/json', ...target.headers, ...work.headers }
  const firstBytes: number[] = []
  const begun = performance.now()
  let next = from
  const worker = async (): Promise<void> => {
    while (next < to) firstBytes.push(await once(pool, headers, work.body(next++)))
  }
  await Promise.all(Array.from({ length: work.concurrency }, worker))
  const seconds = (performance.now() - begun) / 1000
  await pool.close()
  return { seconds, firstByte: median(firstBytes) }
}

/** Returns the milliseconds to the first byte of the body. Rejects unless the status is 200. */
function once(pool: Pool, headers: Readonly<Record<string, string>>, body: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const begun = performance.now()
    let first = 0
    let failed = ''
    pool.dispatch(
      { path: '/v1/chat/completions', method: 'POST', headers, body },
      {
        onRequestStart() {},
        onResponseStart(_controller, status) {
          if (status !== 200) failed = `The bench got status ${status}: `
        },
        onResponseData(_controller, bytes) {
          first ||= performance.now() - begun
          if (failed !== '') failed += bytes.toString()
        },
        onResponseEnd() {
          if (failed === '') resolve(first)
          else reject(new Error(failed.slice(0, 500)))
        },
        onResponseError(_controller, error) {
          reject(error)
        },
      },
    )
  })
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? 0
}
