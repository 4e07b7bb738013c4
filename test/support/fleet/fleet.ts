import { fork, type ChildProcess } from 'node:child_process'
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import type { FleetJob, FleetReport } from './jobs.ts'

const root = fileURLToPath(new URL('../../..', import.meta.url))

/** Processes that share one store. */
export interface Fleet {
  start(job: FleetJob, onReport: (report: FleetReport) => void): ChildProcess
  /** Ends a process with SIGKILL and waits for its end. */
  kill(child: ChildProcess): Promise<void>
  /** Kills every process and removes the script. */
  close(): Promise<void>
}

/**
 * Bundles the worker once, so that processes start fast. The bundle is in node_modules to resolve packages from there.
 */
export async function createFleet(): Promise<Fleet> {
  const directory = join(root, 'node_modules', `.sluice-fleet-${process.pid}-${Date.now()}`)
  mkdirSync(directory)
  const script = join(directory, 'worker.mjs')
  await build({
    entryPoints: [join(root, 'test/support/fleet/worker.ts')],
    outfile: script,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    packages: 'external',
    alias: {
      '#hash': join(root, 'src/platform/hash-node.ts'),
      '#transport': join(root, 'src/http/transport-undici.ts'),
    },
  })
  const children = new Set<ChildProcess>()

  function start(job: FleetJob, onReport: (report: FleetReport) => void): ChildProcess {
    const child = fork(script, [JSON.stringify(job)], { execArgv: [] })
    children.add(child)
    child.on('message', (message) => onReport(message as FleetReport))
    child.once('exit', () => children.delete(child))
    return child
  }

  async function kill(child: ChildProcess): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await ended
  }

  return {
    start,
    kill,
    close: async () => {
      await Promise.all([...children].map(kill))
      rmSync(directory, { recursive: true })
    },
  }
}

/** Resolves when a process exits. Rejects if its exit code is not 0. */
export function exitOf(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`A process of the fleet exited with code ${code}.`)),
    )
  })
}
