import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { IS_FULL } from './full.ts'
import { waitUntil } from './wait-until.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
/** Only ends a wait for a build that never ends. */
const BUILD_MS = 230_000
const builds = join(root, 'node_modules/.cache/sluice-builds')

/**
 * Writes a copy of the built package into `folder`, from BUILT_PACKAGE, as in `.ci/run`, or from the one build that all
 * files of a test run share. Its types, whose build takes a minute, are only built with `FULL_TESTS`.
 */
export async function writeBuiltPackage(folder: string): Promise<void> {
  const built = process.env['BUILT_PACKAGE'] ?? ''
  await cp(built === '' ? await buildOnce() : resolve(root, built), folder, { recursive: true })
}

async function buildOnce(): Promise<string> {
  const run = join(builds, process.env['TEST_RUN'] ?? '')
  await mkdir(builds, { recursive: true })
  const isFirst = await mkdir(run).then(
    () => true,
    () => false,
  )
  if (isFirst) {
    await removeBuildsOfEndedRuns()
    await writeFile(join(run, 'failure'), await build(join(run, 'dist')))
  }
  await waitUntil(() => existsSync(join(run, 'failure')), BUILD_MS)
  const failure = await readFile(join(run, 'failure'), 'utf8')
  if (failure !== '') throw new Error(`The package could not be built: ${failure}`)
  return join(run, 'dist')
}

/** Returns the error, or an empty text if there is none. */
async function build(folder: string): Promise<string> {
  const tsup = join(root, 'node_modules/tsup/dist/cli-default.js')
  const args = [tsup, '--silent', ...(IS_FULL ? [] : ['--no-dts']), '--out-dir', folder]
  return promisify(execFile)(process.execPath, args, { cwd: root }).then(() => '', String)
}

async function removeBuildsOfEndedRuns(): Promise<void> {
  for (const name of await readdir(builds)) {
    if (!isRunning(Number.parseInt(name, 10))) await rm(join(builds, name), { recursive: true, force: true })
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
