import type { ProviderStates } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { sendJson } from '../pipeline/head.ts'
import type { Services } from '../pipeline/services.ts'
import { adminHeaders, type Handler } from './endpoint.ts'

type Health = 'healthy' | 'degraded' | 'unhealthy'

const STORE_DEADLINE_MS = 1000

export interface StatusParts {
  readonly store: Store
  readonly providers: () => ProviderStates
  readonly runtime: Services['runtime']
  /** True when requests are served while the store fails. @default false */
  readonly servesWithoutStore?: boolean
}

/**
 * GET /health: 503 when the store cannot be reached, `degraded` (200) while a circuit is not closed. With
 * `onStoreFailure: 'allow'` a store that cannot be reached is `degraded`, too. The names of the services are those of
 * the specification: optimizer is the waterfall, bifrost the routing to providers, redis the store, mcp_tools the
 * search in stored contexts. The endpoint needs no key. The response contains no names or addresses.
 */
export function health(parts: StatusParts): Handler {
  return async (call) => {
    const store = await answers(parts)
    const routing = Object.values(parts.providers()).every((state) => state === 'healthy')
    const isDegraded = !store || !routing
    const isUnhealthy = !store && !parts.servesWithoutStore
    const status: Health = isUnhealthy ? 'unhealthy' : isDegraded ? 'degraded' : 'healthy'
    const body = {
      status,
      timestamp: new Date(parts.runtime.now()).toISOString(),
      services: {
        optimizer: 'healthy',
        bifrost: routing ? 'healthy' : 'degraded',
        redis: store ? 'healthy' : 'unhealthy',
        mcp_tools: store ? 'healthy' : 'unhealthy',
      },
    }
    sendJson(call.sink, isUnhealthy ? 503 : 200, adminHeaders(call), JSON.stringify(body))
  }
}

/** GET /ready: 200 when requests can be served, 503 when the store or every provider is unavailable. */
export function ready(parts: StatusParts): Handler {
  return async (call) => {
    const store = await answers(parts)
    const states = Object.entries(parts.providers())
    const providers = Object.fromEntries(states.map(([name, state]) => [name, state !== 'away']))
    const routing = Object.values(providers).some(Boolean)
    const isReady = (store || parts.servesWithoutStore) && routing
    const body = { ready: isReady, dependencies: { bifrost: routing, redis: store, providers } }
    sendJson(call.sink, isReady ? 200 : 503, adminHeaders(call), JSON.stringify(body))
  }
}

/** GET /: one line for browsers and for clients that check the address. */
export const greeting: Handler = (call) => {
  const headers = { ...adminHeaders(call), 'content-type': 'text/plain; charset=utf-8' }
  call.sink.whole(200, headers, 'sluice answers here: send requests to /v1 with a virtual key.\n')
}

/** Resolves with true when the store answers within a second. */
async function answers({ store, runtime }: StatusParts): Promise<boolean> {
  let cancel: () => void = () => {}
  const late = new Promise<boolean>((resolve) => {
    cancel = runtime.after(STORE_DEADLINE_MS, () => resolve(false))
  })
  const answered = store.ping().then(
    () => true,
    () => false,
  )
  const result = await Promise.race([answered, late])
  cancel()
  return result
}
