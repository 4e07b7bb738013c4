import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

function source(path: string): string {
  return fileURLToPath(new URL(`./src/${path}`, import.meta.url))
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
    include: ['test/**/*.test.ts'],
    // Only ends a test that would never end. A slow machine must not reach it.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
  },
})

export default config
