/** The built gateway in front of the fake upstream. argv: upstream URL, then `governed`, `ungoverned` or `default`. */
import { createServer } from 'node:http'
import { createGateway, openaiCompatible, type NewKey } from 'sluice'
import { toNodeHandler } from 'sluice/node'
import { listen } from './listen.ts'

const [, , upstream = '', mode = 'governed'] = process.argv
const model = { price: { input: 1, output: 2 }, contextWindowTokens: 1_000_000, maxOutputTokens: 1000 }
const gateway = createGateway({
  providers: [
    openaiCompatible({
      name: 'bench',
      baseUrl: `${upstream}/v1`,
      models: [
        { id: 'bench-model', ...model },
        { id: 'paced-model', ...model },
      ],
    }),
  ],
  // `default` keeps all default options, including the cache.
  ...(mode === 'default' ? {} : { cache: false }),
})
const limits: Omit<NewKey, 'name'> = {
  budgetLimitCents: 100_000_000,
  budgetResetDuration: '1M',
  rateLimitRequests: 1_000_000_000,
  rateLimitResetDuration: '1h',
  rateLimitTokens: 1_000_000_000_000,
  tokenResetDuration: '1h',
}
const key = await gateway.keys.create({ name: 'bench', ...(mode === 'ungoverned' ? {} : limits) })
listen(createServer(toNodeHandler(gateway)), { key: key.value })
