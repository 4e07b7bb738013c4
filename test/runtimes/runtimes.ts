import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { it } from 'vitest'

/** A runtime that starts a program of `programs/`. */
export interface InstalledRuntime {
  readonly name: string
  /** Undefined if the runtime is not installed. */
  readonly command: string | undefined
  readonly args: readonly string[]
  /** Program that starts a server. */
  readonly server: string
}

const modules = fileURLToPath(new URL('../../.ci/runtimes/node_modules', import.meta.url))

const node20 = process.version.startsWith('v20.') ? process.execPath : undefined
const node22 = installed('node22/bin/node')

/** The runtimes that `npm install --prefix .ci/runtimes --no-save --ignore-scripts` installs. */
export const RUNTIMES: readonly InstalledRuntime[] = [
  { name: 'Node 20', command: node20, args: [], server: 'node.js' },
  { name: 'Node 22', command: node22, args: [], server: 'node.js' },
  { name: 'Node 24', command: installed('node24/bin/node'), args: [], server: 'node.js' },
  { name: 'Bun', command: installed('@oven/bun-linux-x64/bin/bun'), args: ['run'], server: 'bun.js' },
  {
    name: 'Deno',
    command: installed('@deno/linux-x64-glibc/deno'),
    args: ['run', '--allow-all', '--node-modules-dir=manual', '--quiet'],
    server: 'deno.js',
  },
]

/** workerd runs a bundle. Miniflare starts it and needs Node 22. */
export const WORKERD: InstalledRuntime = {
  name: 'workerd',
  command: installed('@cloudflare/workerd-linux-64/bin/workerd') && node22,
  args: [],
  server: 'workerd-host.js',
}

/** The command line of Next.js, which is optional because it is large (300 MB). */
export const NEXT: string | undefined = installed('next/dist/bin/next')

/** Whether the frameworks h3 and hono are installed. */
export const HAS_FRAMEWORKS: boolean = installed('h3') !== undefined && installed('hono') !== undefined

/** Skips the tests on a runtime that is not installed. With `REQUIRE_RUNTIMES`, as in `.ci/run`, they fail instead. */
export function skipMissing(): void {
  const report = process.env['REQUIRE_RUNTIMES'] === undefined ? it.skip : it
  report('is installed', () => {
    throw new Error('It is not installed. Run: npm install --prefix .ci/runtimes --no-save --ignore-scripts')
  })
}

function installed(path: string): string | undefined {
  const file = join(modules, path)
  return existsSync(file) ? file : undefined
}
