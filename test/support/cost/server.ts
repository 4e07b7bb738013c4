/**
 * Runs a gateway alone in a process and counts the work of its requests. argv: base URL of the upstream, and `off` if the
 * cache is disabled.
 */
import { createServer } from 'node:http'
import { Session } from 'node:inspector/promises'
import { createGateway, memoryStore, openaiCompatible } from '../../../src/index.ts'
import { toNodeHandler } from '../../../src/node.ts'
import { allocationCounter, coverageCounter, resourceCounter, type Counter } from './counters.ts'

const [, , baseUrl = '', cache] = process.argv
const sourceUrl = new URL('../../../src/', import.meta.url).href
const store = memoryStore()
let storeCalls: string[] = []
const countedStore = new Proxy(store, {
  get(target, name) {
    const value: unknown = Reflect.get(target, name)
    if (typeof value !== 'function') return value
    return (...args: unknown[]): unknown => {
      storeCalls.push(String(name))
      return Reflect.apply(value, target, args)
    }
  },
})
const session = new Session()
session.connect()
const counters: Readonly<Record<string, Counter<unknown>>> = {
  entered: coverageCounter(session, sourceUrl),
  created: resourceCounter(sourceUrl),
  allocated: allocationCounter(session),
  storeCalls: { start: async () => void (storeCalls = []), stop: async () => storeCalls },
}

const gateway = createGateway({
  providers: [
    openaiCompatible({
      name: 'cost',
      baseUrl,
      models: [{ id: 'model', price: { input: 1, output: 2 }, contextWindowTokens: 100_000, maxOutputTokens: 1000 }],
    }),
  ],
  store: countedStore,
  ...(cache === 'off' && { cache: false }),
})
const key = await gateway.keys.create({
  name: 'cost',
  budget_limit_cents: 100_000_000,
  budget_reset_duration: '1M',
  rate_limit_requests: 1_000_000_000,
  rate_limit_reset_duration: '1h',
  rate_limit_tokens: 1_000_000_000_000,
  token_reset_duration: '1h',
})
const server = createServer(toNodeHandler(gateway)).listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (typeof address === 'object' && address !== null) process.send?.({ port: address.port, key: key.value })
})

process.on('message', async ({ counter, step }: { readonly counter: string; readonly step: 'start' | 'stop' }) => {
  // The work of a request continues after its response.
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
  process.send?.({ value: await counters[counter]?.[step]() })
})
process.on('disconnect', () => process.exit(0))
