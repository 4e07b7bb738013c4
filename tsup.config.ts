import { readdirSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { defineConfig, type Options } from 'tsup'

type EsbuildPlugin = NonNullable<Options['esbuildPlugins']>[number]

const MAIN = resolve('src/gateway.ts')

/** The modules that the main entry loads on demand, and those that they load. */
function modulesOnDemand(): ReadonlySet<string> {
  const found = new Set<string>()
  for (const path of readdirSync('src', { recursive: true, encoding: 'utf8' })) {
    if (!/^(?!stores|embedder|cli).*\.ts$/.test(path)) continue
    const file = resolve('src', path)
    for (const [, target = ''] of readFileSync(file, 'utf8').matchAll(/import\('(\.[^']+)'\)/g))
      found.add(join(dirname(file), target))
  }
  return found
}

/**
 * Lets each module that is loaded on demand import the main entry, which is loaded by then. Otherwise, the bundler would
 * divide the main entry into one file for each set of modules that use the same part of it.
 */
const keepMainEntryWhole: EsbuildPlugin = {
  name: 'keep-main-entry-whole',
  setup: (build) => {
    const onDemand = modulesOnDemand()
    build.onResolve({ filter: /^#main-entry$/ }, () => ({ path: MAIN, sideEffects: true }))
    build.onLoad({ filter: /\.ts$/ }, async ({ path }) =>
      onDemand.has(path)
        ? { contents: `${await readFile(path, 'utf8')}\nexport { createGateway as mainEntry } from '#main-entry'\n`, loader: 'ts' }
        : undefined,
    )
  },
}

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
    billing: 'src/billing.ts',
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
  esbuildPlugins: [keepMainEntryWhole],
  treeshake: true,
  sourcemap: true,
})

export default config
