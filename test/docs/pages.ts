import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { bundlePrograms } from '../support/programs.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Returns the TypeScript blocks of a page in order. */
export function blocksOf(page: string): readonly string[] {
  return [...readFileSync(join(root, page), 'utf8').matchAll(/```ts\n([\s\S]*?)```/g)].map((match) => match[1] ?? '')
}

/** Runs code, which may import the package by its name, in a process, and returns the output. */
export async function runCode(code: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  const programs = await bundlePrograms({ page: { code } })
  try {
    const options = { cwd: root, env: { ...process.env, ...env } }
    return (await promisify(execFile)(process.execPath, [programs.fileOf('page')], options)).stdout
  } finally {
    await programs.remove()
  }
}
