import { defineConfig } from 'tsup'

const config: ReturnType<typeof defineConfig> = defineConfig({
  entry: {
    index: 'src/index.ts',
    node: 'src/node.ts',
    express: 'src/express.ts',
    fastify: 'src/fastify.ts',
    next: 'src/next.ts',
    providers: 'src/providers.ts',
    bedrock: 'src/bedrock.ts',
    embedder: 'src/embedder.ts',
    'embedder-worker': 'src/embedder/embedder-worker.ts',
    sqlite: 'src/sqlite.ts',
    redis: 'src/redis.ts',
    postgres: 'src/postgres.ts',
    provider: 'src/provider.ts',
    store: 'src/store.ts',
    savings: 'src/savings.ts',
    testing: 'src/testing.ts',
    cli: 'src/cli.ts',
    'transport-undici': 'src/http/transport-undici.ts',
    'transport-fetch': 'src/http/transport-fetch.ts',
    'hash-node': 'src/platform/hash-node.ts',
    'hash-portable': 'src/platform/hash-portable.ts',
  },
  format: ['esm', 'cjs'],
  target: 'node20',
  platform: 'neutral',
  // The name `http` alone may be a package; `node:http` never is.
  removeNodeProtocol: false,
  // The drivers are the user's own.
  external: [/^node:/, '#transport', '#hash', 'pg', 'postgres', 'aws4fetch', '@huggingface/tokenizers'],
  // `npm run types` holds the source to isolatedDeclarations; here it would refuse what it only reports when emitting.
  dts: { compilerOptions: { isolatedDeclarations: false } },
  clean: true,
  // `src/embedder/model-worker.ts` uses `__filename` in CommonJS.
  esbuildOptions: (options) => {
    options.logOverride = { ...options.logOverride, 'empty-import-meta': 'silent' }
  },
  splitting: true,
  treeshake: true,
  sourcemap: true,
})

export default config
