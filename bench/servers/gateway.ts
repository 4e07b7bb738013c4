/** The built gateway in front of the fake upstream. argv: upstream URL, then `governed`, `ungoverned`, `default`, `budget` or `customers`. */
import { createServer } from 'node:http'
import { createGateway, openaiCompatible, type CallerContext, type NewKey } from 'sluice'
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
  plans: {
    team: {
      budgets: [
        { limitUsd: 1_000_000, window: '1M' },
        { limitUsd: 1_000_000, window: '1d' },
      ],
      perUser: [{ limitUsd: 1_000_000, window: '1M' }],
      perSession: { limitUsd: 1_000_000, requests: 1_000_000_000 },
    },
  },
  customers: { defaultPlan: 'team' },
  // `default` keeps all default options, including the cache.
  ...(mode === 'default' ? {} : { cache: false }),
})
const budget: Omit<NewKey, 'name'> = { budgetLimitCents: 100_000_000, budgetResetDuration: '1M' }
const limits: Omit<NewKey, 'name'> = {
  ...budget,
  rateLimitRequests: 1_000_000_000,
  rateLimitResetDuration: '1h',
  rateLimitTokens: 1_000_000_000_000,
  tokenResetDuration: '1h',
}
const limitsOf: Readonly<Record<string, Omit<NewKey, 'name'>>> = { ungoverned: {}, budget, customers: budget }
const key = await gateway.keys.create({ name: 'bench', ...(limitsOf[mode] ?? limits) })
let count = 0
/** Of 100 customers with 10 users each, whose sessions have 20 requests. With the budget of the key, 6 claims. */
const contextOfNext = (): CallerContext => {
  count += 1
  const customer = count % 100
  return { customer: `c${customer}`, user: `u${count % 1000}`, session: `s${customer}-${Math.floor(count / 2000)}` }
}
const handler = mode === 'customers' ? toNodeHandler(gateway, { context: contextOfNext }) : toNodeHandler(gateway)
listen(createServer(handler), { key: key.value })
