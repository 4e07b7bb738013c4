import { fork, type ChildProcess } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { bundlePrograms } from '../programs.ts'
import type { FleetJob, FleetReport } from './jobs.ts'

/** Processes that share one store. */
export interface Fleet {
  start(job: FleetJob, onReport: (report: FleetReport) => void): ChildProcess
  /** Ends a process with SIGKILL and waits for its end. */
  kill(child: ChildProcess): Promise<void>
  /** Kills every process and removes the script. */
  close(): Promise<void>
}

const worker = fileURLToPath(new URL('worker.ts', import.meta.url))

export async function createFleet(): Promise<Fleet> {
  const programs = await bundlePrograms({ worker: { file: worker } })
  const children = new Set<ChildProcess>()

  function start(job: FleetJob, onReport: (report: FleetReport) => void): ChildProcess {
    const child = fork(programs.fileOf('worker'), [JSON.stringify(job)], { execArgv: [] })
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
      await programs.remove()
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
