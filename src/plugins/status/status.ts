import { isTrueWithin } from '../../core/async.ts'
import type { ProviderStates, Runtime } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import { noStoreHeaders, type Handler } from '../../kernel/run.ts'
import { sendJson } from '../../kernel/response-headers.ts'

type Health = 'healthy' | 'degraded' | 'unhealthy'

const STORE_TIMEOUT_MS = 1000

interface StatusDependencies {
  readonly store: Store
  readonly providers: () => ProviderStates
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly servesWithoutStore: boolean
}

/**
 * The specification defines the service names: bifrost is the routing to providers, redis is the store, and
 * mcp_tools is the search in stored contexts.
 */
export function health(dependencies: StatusDependencies): Handler {
  return async (call) => {
    const isStoreUp = await isStoreReachable(dependencies)
    const areProvidersHealthy = Object.values(dependencies.providers()).every((state) => state === 'healthy')
    const isDegraded = !isStoreUp || !areProvidersHealthy
    const isUnhealthy = !isStoreUp && !dependencies.servesWithoutStore
    const status: Health = isUnhealthy ? 'unhealthy' : isDegraded ? 'degraded' : 'healthy'
    const body = {
      status,
      timestamp: new Date(dependencies.runtime.now()).toISOString(),
      services: {
        optimizer: 'healthy',
        bifrost: areProvidersHealthy ? 'healthy' : 'degraded',
        redis: isStoreUp ? 'healthy' : 'unhealthy',
        mcp_tools: isStoreUp ? 'healthy' : 'unhealthy',
      },
    }
    sendJson(call.sink, isUnhealthy ? 503 : 200, noStoreHeaders(call), JSON.stringify(body))
  }
}

export function ready(dependencies: StatusDependencies): Handler {
  return async (call) => {
    const isStoreUp = await isStoreReachable(dependencies)
    const states = Object.entries(dependencies.providers())
    const providers = Object.fromEntries(states.map(([name, state]) => [name, state !== 'unavailable']))
    const isRoutingUp = Object.values(providers).some(Boolean)
    const isReady = (isStoreUp || dependencies.servesWithoutStore) && isRoutingUp
    const body = { ready: isReady, dependencies: { bifrost: isRoutingUp, redis: isStoreUp, providers } }
    sendJson(call.sink, isReady ? 200 : 503, noStoreHeaders(call), JSON.stringify(body))
  }
}

export const greeting: Handler = (call) => {
  const headers = { ...noStoreHeaders(call), 'content-type': 'text/plain; charset=utf-8' }
  call.sink.send(200, headers, 'sluice is running. Send requests to /v1 with a virtual key.\n')
}

function isStoreReachable({ store, runtime }: StatusDependencies): Promise<boolean> {
  return isTrueWithin(STORE_TIMEOUT_MS, () => store.ping().then(() => true), runtime)
}
