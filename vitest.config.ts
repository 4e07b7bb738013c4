import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

const config: ReturnType<typeof defineConfig> = defineConfig({
  resolve: {
    alias: { '#transport': fileURLToPath(new URL('./src/http/transport-undici.ts', import.meta.url)) },
  },
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 20_000,
    hookTimeout: 60_000,
    pool: 'forks',
  },
})

export default config
