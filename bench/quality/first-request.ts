import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { median } from '../load.ts'
import { compileServers } from '../targets.ts'

const PROCESSES = 7

/** The time of a long prompt through the built gateway, as a multiple of parsing and serializing its body once. */
export interface FirstRequest {
  /** The first request of a process, which loads the tiers and the token ranks. */
  readonly first: number
  /** The next request of the same process, with another conversation. */
  readonly second: number
  readonly firstMs: number
  readonly processes: number
}

/** Runs new processes one after the other and returns medians. Requires a built package. */
export async function measureFirstRequest(): Promise<FirstRequest> {
  await compileServers()
  const script = fileURLToPath(new URL('../.build/first-request.js', import.meta.url))
  const runs: { readonly first: number; readonly second: number; readonly parse: number }[] = []
  for (let at = 0; at < PROCESSES; at++) {
    const { stdout } = await promisify(execFile)(process.execPath, [script])
    runs.push(JSON.parse(stdout))
  }
  return {
    first: median(runs.map(({ first, parse }) => first / parse)),
    second: median(runs.map(({ second, parse }) => second / parse)),
    firstMs: median(runs.map(({ first }) => first)),
    processes: PROCESSES,
  }
}
