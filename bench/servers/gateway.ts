/** The built gateway in front of the fake model. argv: upstream URL, then `governed`, `ungoverned` or `default`. */
import { createServer } from 'node:http'
import { createGateway, openaiCompatible, type NewKey } from 'sluice'
import { toNodeHandler } from 'sluice/node'
import { listen } from './listen.ts'

const [, , upstream = '', mode = 'governed'] = process.argv
const model = { price: { input: 1, output: 2 }, contextWindow: 1_000_000, maxOutputTokens: 1000 }
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
  // `default` leaves every option as it is, the answer cache included.
  ...(mode === 'default' ? {} : { cache: false }),
})
const limits: Omit<NewKey, 'name'> = {
  budget_limit_cents: 100_000_000,
  budget_reset_duration: '1M',
  rate_limit_requests: 1_000_000_000,
  rate_limit_reset_duration: '1h',
  rate_limit_tokens: 1_000_000_000_000,
  token_reset_duration: '1h',
}
const key = await gateway.keys.create({ name: 'bench', ...(mode === 'ungoverned' ? {} : limits) })
listen(createServer(toNodeHandler(gateway)), { key: key.value })
