import type { Provider } from '../../src/core/ports.ts'
import type { Store } from '../../src/core/store.ts'
import { createGateway, memoryStore, type Gateway, type GatewayOptions } from '../../src/index.ts'
import { gatewayOptions, MODEL } from '../support/fleet/jobs.ts'

type Mode = 'pass' | 'fail' | 'hang' | 'slow'
type Method = 'get' | 'reserve' | 'settle' | 'levels' | 'append' | 'ping'

/** Creates a memory store whose calls fail, hang or take 1.9 seconds on demand. */
export function failingStore() {
  const inner = memoryStore()
  const state: {
    mode: Mode
    modes: Partial<Record<Method, Mode>>
    readonly calls: Method[]
    readonly held: (() => void)[]
  } = { mode: 'pass', modes: {}, calls: [], held: [] }
  const response = async <result>(method: Method, work: () => result | Promise<result>): Promise<result> => {
    state.calls.push(method)
    const mode = state.modes[method] ?? state.mode
    if (mode === 'fail') throw new Error('connection refused')
    if (mode === 'hang') await new Promise<void>((resolve) => void state.held.push(resolve))
    if (mode === 'slow') await new Promise((resolve) => setTimeout(resolve, 1_900))
    return work()
  }
  const store: Store = {
    ...inner,
    get: (key) => response('get', () => inner.get(key)),
    reserve: (request) => response('reserve', () => inner.reserve(request)),
    settle: (settlement) => response('settle', () => inner.settle(settlement)),
    levels: (counters) => response('levels', () => inner.levels(counters)),
    append: (log, entry) => response('append', () => inner.append(log, entry)),
    ping: () => response('ping', () => inner.ping()),
    // The data outlives the gateway.
    close: async () => {},
  }
  return { store, state, inner }
}

export async function gatewayOn(store: Store, more: Partial<GatewayOptions> = {}) {
  const options = gatewayOptions(store)
  const [provider] = options.providers
  if (provider === undefined) throw new Error('The options of the fleet have one provider.')
  const calls = { upstream: 0 }
  const countingProvider: Provider = {
    ...provider,
    complete: (call) => {
      calls.upstream += 1
      return provider.complete(call)
    },
  }
  const gateway = createGateway({ ...options, providers: [countingProvider], ...more })
  const { id, value } = await gateway.keys.create({ name: 'app', budget_limit_cents: 1_000 })
  return { gateway, id, secret: value, calls }
}

export async function ask(gateway: Gateway, secret: string) {
  const response = await gateway.fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, max_tokens: 16, messages: [{ role: 'user', content: 'Hello there.' }] }),
  })
  await response.text()
  return { status: response.status, retryAfter: response.headers.get('retry-after') }
}

export const requestsOf = async (gateway: Gateway, id: string) => (await gateway.keys.usage(id)).requests
