import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { IS_FULL } from './full.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The arguments with which Node runs each example. */
export interface ExamplePrograms {
  readonly argumentsOf: (name: string) => readonly string[]
  readonly remove: () => Promise<void>
}

/**
 * Prepares the examples: with `FULL_TESTS` for tsx, as the examples say, otherwise in one bundle, because a process then
 * starts in a tenth of the time.
 */
export async function prepareExamples(names: readonly string[]): Promise<ExamplePrograms> {
  const tsx = join(root, 'node_modules/tsx/dist/cli.mjs')
  if (IS_FULL) return { argumentsOf: (name) => [tsx, `examples/${name}.ts`], remove: async () => {} }
  // In node_modules, to resolve packages from there.
  const folder = await mkdtemp(join(root, 'node_modules', '.examples-'))
  await build({
    entryPoints: names.map((name) => join(root, `examples/${name}.ts`)),
    outdir: folder,
    outbase: join(root, 'examples'),
    outExtension: { '.js': '.mjs' },
    absWorkingDir: root,
    bundle: true,
    splitting: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'node20',
    alias: {
      '#hash': join(root, 'src/platform/hash-node.ts'),
      '#transport': join(root, 'src/http/transport-undici.ts'),
    },
    logLevel: 'error',
  })
  return {
    argumentsOf: (name) => [join(folder, `${name}.mjs`)],
    remove: () => rm(folder, { recursive: true, force: true }),
  }
}
