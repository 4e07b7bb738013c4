import { Pool } from 'undici'
import type { Target } from './targets.ts'

export interface Work {
  /** Returns the body of request `index`. Indices start at 0 and do not repeat for a target. */
  readonly body: (index: number) => string
  readonly headers?: Readonly<Record<string, string>>
  readonly concurrency: number
}

export interface LoadResult {
  readonly seconds: number
  /** Median time to the first byte of the body, in milliseconds. */
  readonly firstByte: number
}

/** Sends requests `from` (inclusive) to `to` (exclusive) and reads each response to its end. */
export async function send(target: Target, work: Work, from: number, to: number): Promise<LoadResult> {
  const pool = new Pool(target.url, { connections: work.concurrency, pipelining: 1 })
  const headers = headersFor(target, work)
  const firstBytes: number[] = []
  const startedAt = performance.now()
  let next = from
  const worker = async (): Promise<void> => {
    while (next < to) firstBytes.push(await sendOne(pool, headers, work.body(next++)))
  }
  await Promise.all(Array.from({ length: work.concurrency }, worker))
  const seconds = (performance.now() - startedAt) / 1000
  await pool.close()
  return { seconds, firstByte: median(firstBytes) }
}

/**
 * Sends each request to all targets, one after the other, before the next request, so that load on the machine affects
 * all targets alike. Returns one result per target.
 */
export async function sendInTurn(
  targets: readonly Target[],
  work: Work,
  from: number,
  to: number,
): Promise<readonly LoadResult[]> {
  const clients = targets.map((target) => ({
    pool: new Pool(target.url, { connections: 1, pipelining: 1 }),
    headers: headersFor(target, work),
    firstBytes: [] as number[],
    seconds: 0,
  }))
  for (let index = from; index < to; index++) {
    for (const client of clients) {
      const startedAt = performance.now()
      client.firstBytes.push(await sendOne(client.pool, client.headers, work.body(index)))
      client.seconds += (performance.now() - startedAt) / 1000
    }
  }
  await Promise.all(clients.map(({ pool }) => pool.close()))
  return clients.map(({ seconds, firstBytes }) => ({ seconds, firstByte: median(firstBytes) }))
}

function headersFor(target: Target, work: Work): Readonly<Record<string, string>> {
  return { 'content-type': 'application/json', ...target.headers, ...work.headers }
}

/** Returns the time to the first byte of the body in milliseconds. Rejects if the status is not 200. */
function sendOne(pool: Pool, headers: Readonly<Record<string, string>>, body: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now()
    let first = 0
    let failed = ''
    pool.dispatch(
      { path: '/v1/chat/completions', method: 'POST', headers, body },
      {
        onRequestStart() {},
        onResponseStart(_controller, status) {
          if (status !== 200) failed = `Expected status 200, got ${status}: `
        },
        onResponseData(_controller, bytes) {
          first ||= performance.now() - startedAt
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
