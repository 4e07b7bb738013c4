/** The built gateway in front of the fake model. argv: upstream URL, `governed`, `open` or `cached`. Tells its key to the parent. */
import { createServer } from 'node:http'
import { createGateway, memoryStore, openaiCompatible, type NewKey } from 'sluice'
import { toNodeHandler } from 'sluice/node'
import { serveParent } from './child.ts'

const [, , upstream = '', mode = 'governed'] = process.argv
const gateway = createGateway({
  providers: [
    openaiCompatible({
      name: 'bench',
      baseUrl: `${upstream}/v1`,
      models: [{ id: 'bench-model', price: { input: 1, output: 2 }, contextWindow: 1_000_000, maxOutputTokens: 1000 }],
    }),
  ],
  store: memoryStore(),
  // Every request asks the same: what is measured is the way to the upstream, not around it.
  cache: mode === 'cached' ? {} : false,
})
const limits: Omit<NewKey, 'name'> = {
  budget_limit_cents: 100_000_000,
  budget_reset_duration: '1M',
  rate_limit_requests: 1_000_000_000,
  rate_limit_reset_duration: '1h',
  rate_limit_tokens: 1_000_000_000_000,
  token_reset_duration: '1h',
}
const key = await gateway.keys.create({ name: 'bench', ...(mode === 'open' ? {} : limits) })
serveParent(createServer(toNodeHandler(gateway)))
process.send?.({ key: key.value })
