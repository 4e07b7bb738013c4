import { readdirSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { configDefaults, defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

function source(path: string): string {
  return fileURLToPath(new URL(`./src/${path}`, import.meta.url))
}

/**
 * A test file that replaces modules, globals or clocks, which other files may keep, runs in a process of its own, and so
 * does one that says `@own-process` and why. All others share a process per worker, which imports the sources once
 * instead of 280 times.
 */
const OWN_PROCESS = /@own-process|\bvi\.(?:mock|doMock|stubGlobal|useFakeTimers|resetModules|spyOn\(performance)\b/

const root = fileURLToPath(new URL('.', import.meta.url))

/** Skips installed packages, such as the agents in test/clients, which have tests of their own. */
function testFiles(folder: string): readonly string[] {
  return readdirSync(`${root}${folder}`, { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : testFiles(path)
    return entry.name.endsWith('.test.ts') ? [path] : []
  })
}

const ownProcess: string[] = testFiles('test').filter((path) =>
  OWN_PROCESS.test(readFileSync(`${root}${path}`, 'utf8')),
)
const exclude: string[] = [...configDefaults.exclude, ...ownProcess]

// Test files of the same run share a build: test/support/built-package.ts.
process.env['TEST_RUN'] ??= `${process.pid}-${Date.now()}`

/** The longest files have a process of their own. They start first, so that none of them runs alone at the end. */
class OwnProcessFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isFirst = ({ project }: TestSpecification): boolean => project.name === 'own-process'
    return [...sorted.filter(isFirst), ...sorted.filter((file) => !isFirst(file))]
  }
}

const config: ReturnType<typeof defineConfig> = defineConfig({
  resolve: {
    // The same names that tsconfig.json gives; test/dist.test.ts tests the built package under them.
    alias: [
      { find: '#hash', replacement: source('platform/hash-node.ts') },
      { find: '#transport', replacement: source('http/transport-undici.ts') },
      { find: /^sluice$/, replacement: source('index.ts') },
      { find: /^sluice\/(\w+)$/, replacement: source('$1.ts') },
    ],
  },
  test: {
    // Only ends a test that would never end. A slow machine must not reach it.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 50_000 } },
    pool: 'forks',
    // Tests wait for sockets and child processes, so two cores take two workers.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    sequence: { sequencer: OwnProcessFirst },
    projects: [
      { extends: true, test: { name: 'own-process', include: ownProcess } },
      { extends: true, test: { name: 'shared', include: ['test/**/*.test.ts'], exclude, isolate: false } },
    ],
  },
})

export default config
