import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join, parse } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const root = fileURLToPath(new URL('../..', import.meta.url))
const cache = join(root, 'node_modules/.cache')

/** TypeScript programs that Node runs in processes of their own. */
export interface Programs {
  /** Returns the compiled file of a program by its name. */
  readonly fileOf: (name: string) => string
  readonly remove: () => Promise<void>
}

/**
 * Bundles programs, given as paths or code by name, with the sources that they use. Their processes start in a fifth of
 * the time that those of tsx take.
 */
export async function bundlePrograms(
  programs: Readonly<Record<string, { readonly file: string } | { readonly code: string }>>,
): Promise<Programs> {
  await mkdir(cache, { recursive: true })
  // In node_modules, to resolve packages from there.
  const folder = await mkdtemp(join(cache, 'programs-'))
  await build({
    entryPoints: Object.keys(programs).map((name) => ({ in: `program:${name}`, out: name })),
    outdir: folder,
    outExtension: { '.js': '.mjs' },
    absWorkingDir: root,
    bundle: true,
    splitting: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'node20',
    logLevel: 'error',
    plugins: [
      {
        name: 'programs',
        setup({ onResolve, onLoad }) {
          onResolve({ filter: /^program:/ }, ({ path }) => {
            const program = programs[path.slice('program:'.length)]
            return program !== undefined && 'file' in program ? { path: program.file } : { path, namespace: 'program' }
          })
          onLoad({ filter: /.*/, namespace: 'program' }, ({ path }) => {
            const program = programs[path.slice('program:'.length)]
            const contents = program !== undefined && 'code' in program ? program.code : ''
            return { contents, loader: 'ts', resolveDir: root }
          })
          // The same names that tsconfig.json gives.
          onResolve({ filter: /^(?:#hash|#transport|sluice(?:\/\w+)?)$/ }, ({ path }) => ({ path: sourceOf(path) }))
        },
      },
    ],
  })
  return {
    fileOf: (name) => join(folder, `${name}.mjs`),
    remove: () => rm(folder, { recursive: true, force: true }),
  }
}

function sourceOf(name: string): string {
  const source = { '#hash': 'platform/hash-node', '#transport': 'http/transport-undici', sluice: 'index' }[name]
  return join(root, 'src', `${source ?? parse(name).name}.ts`)
}
