import { defineConfig } from 'tsup'

const config: ReturnType<typeof defineConfig> = defineConfig({
  entry: {
    index: 'src/index.ts',
    'transport-undici': 'src/http/transport-undici.ts',
    'transport-fetch': 'src/http/transport-fetch.ts',
  },
  format: ['esm', 'cjs'],
  target: 'node20',
  platform: 'neutral',
  dts: true,
  clean: true,
  splitting: true,
  treeshake: true,
  sourcemap: true,
  external: ['#transport'],
})

export default config
