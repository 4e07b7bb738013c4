import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build } from 'esbuild'

const root = fileURLToPath(new URL('../../..', import.meta.url))

/** Compiles the worker of the local embedder. @param folder where its packages are found. @default the project */
export async function buildWorker(
  folder = join(root, 'node_modules/.cache'),
): Promise<{ url: URL; remove(): Promise<void> }> {
  await mkdir(folder, { recursive: true })
  const output = await mkdtemp(join(folder, 'sluice-worker-'))
  const outfile = join(output, 'embedder-worker.mjs')
  await build({
    entryPoints: [join(root, 'src/embedder/embedder-worker.ts')],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    packages: 'external',
  })
  return { url: pathToFileURL(outfile), remove: () => rm(output, { recursive: true }) }
}
