import { mkdtemp, readdir } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, type Plugin } from 'esbuild'

const root = fileURLToPath(new URL('../../..', import.meta.url))

/**
 * Compiles each file of these folders, relative to the project root, to a separate file, so that V8 reports functions by
 * source file and the measurement includes no loader and no test runner. Returns the folder of the compiled files, which
 * the caller removes.
 */
export async function compileFolders(...names: readonly string[]): Promise<string> {
  const folder = await mkdtemp(join(root, 'node_modules', '.cost-'))
  const files = await Promise.all(names.map((name) => sourcesIn(join(root, name))))
  await build({
    entryPoints: files.flat(),
    outdir: folder,
    outbase: root,
    // A `.js` file without a package.json next to it is CommonJS.
    outExtension: { '.js': '.mjs' },
    absWorkingDir: root,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    // Bundling only rewrites import paths: each import is external.
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

/**
 * Replaces imports of TypeScript files with imports of the compiled files, and resolves the aliases of tsconfig.json.
 */
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
