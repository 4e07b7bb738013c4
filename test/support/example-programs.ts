import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { IS_FULL } from './full.ts'
import { bundlePrograms } from './programs.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The arguments with which Node runs each example. */
export interface ExamplePrograms {
  readonly argumentsOf: (name: string) => readonly string[]
  readonly remove: () => Promise<void>
}

/** Prepares the examples: with `FULL_TESTS` for tsx, as the examples say, otherwise in one bundle. */
export async function prepareExamples(names: readonly string[]): Promise<ExamplePrograms> {
  const tsx = join(root, 'node_modules/tsx/dist/cli.mjs')
  if (IS_FULL) return { argumentsOf: (name) => [tsx, `examples/${name}.ts`], remove: async () => {} }
  const files = names.map((name) => [name, { file: join(root, `examples/${name}.ts`) }] as const)
  const { fileOf, remove } = await bundlePrograms(Object.fromEntries(files))
  return { argumentsOf: (name) => [fileOf(name)], remove }
}
