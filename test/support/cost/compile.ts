import { mkdtemp, readdir } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, type Plugin } from 'esbuild'

const root = fileURLToPath(new URL('../../..', import.meta.url))

/**
 * Compiles each file of these folders, named from the root of the project, to a file of its own, so that V8 reports
 * functions by source file. Neither a loader nor a test runner is part of what is measured then. Returns the folder of
 * the compiled files; the caller removes it.
 */
export async function compileFolders(...names: readonly string[]): Promise<string> {
  const folder = await mkdtemp(join(root, 'node_modules', '.cost-'))
  const files = await Promise.all(names.map((name) => sourcesIn(join(root, name))))
  await build({
    entryPoints: files.flat(),
    outdir: folder,
    outbase: root,
    // Without a package.json beside it, `.js` would be CommonJS.
    outExtension: { '.js': '.mjs' },
    absWorkingDir: root,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    // Each import is external; bundling only serves to rewrite the paths.
    bundle: true,
    packages: 'external',
    plugins: [oneFileEach],
    logLevel: 'error',
  })
  return folder
}

async function sourcesIn(folder: string): Promise<readonly string[]> {
  const names = await readdir(folder, { recursive: true })
  return names.filter((name) => name.endsWith('.ts')).map((name) => join(folder, name))
}

/** Keeps imports of TypeScript files as imports of the compiled ones, with the aliases of tsconfig.json resolved. */
const oneFileEach: Plugin = {
  name: 'one-file-each',
  setup({ onResolve, resolve }) {
    onResolve({ filter: /.*/ }, async ({ path, kind, importer, resolveDir, pluginData }) => {
      if (kind === 'entry-point' || pluginData === oneFileEach) return undefined
      const found = await resolve(path, { kind, importer, resolveDir, pluginData: oneFileEach })
      if (!found.path.endsWith('.ts')) return found
      const target = relative(dirname(importer), found.path).replace(/\.ts$/, '.mjs').split(sep).join('/')
      return { path: target.startsWith('.') ? target : `./${target}`, external: true }
    })
  },
}
