import { existsSync } from 'node:fs'
import { cp, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { writeBuiltPackage } from '../support/built-package.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Builds the package and the programs of this test into `folder`, as a project that depends on the package. */
export async function buildProject(folder: string): Promise<void> {
  const modules = join(folder, 'node_modules')
  const installed = join(modules, 'sluice')
  await mkdir(installed, { recursive: true })
  await cp(join(root, 'package.json'), join(installed, 'package.json'))
  await writeBuiltPackage(join(installed, 'dist'))
  const manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
    readonly dependencies: Readonly<Record<string, string>>
  }
  for (const name of Object.keys(manifest.dependencies)) {
    await mkdir(dirname(join(modules, name)), { recursive: true })
    await symlink(join(root, 'node_modules', name), join(modules, name))
  }
  const programs = fileURLToPath(new URL('programs', import.meta.url))
  for (const file of await readdir(programs)) await cp(join(programs, file), join(folder, file))
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }))
  for (const name of ['express', 'fastify']) await symlink(join(root, 'node_modules', name), join(modules, name))
  for (const name of ['miniflare', 'hono', 'h3', 'next', 'react', 'react-dom']) {
    const source = join(root, '.ci/runtimes/node_modules', name)
    if (existsSync(source)) await symlink(source, join(modules, name))
  }
}
