import type { ProviderState, ProviderStates, Runtime } from '../../core/ports.ts'
import type { CircuitReport } from '../../providers/circuit-breaker.ts'
import type { Endpoint } from '../../http/router.ts'
import type { Services } from '../../kernel/services.ts'
import type { Store } from '../../core/store.ts'
import { type Handler } from '../../kernel/call.ts'
import { sendJson } from '../../kernel/response-headers.ts'
import { isTrueWithin } from '../../core/is-true-within.ts'
import { noStoreHeaders } from '../../kernel/endpoint-responses.ts'

type Health = 'healthy' | 'degraded' | 'unhealthy'

const STORE_TIMEOUT_MS = 1000

export interface StatusSources {
  readonly store: Store
  readonly providers: readonly { readonly name: string }[]
  readonly circuits: () => Readonly<Record<string, CircuitReport>>
  readonly servesWithoutStore: boolean
}

interface StatusDependencies extends Pick<StatusSources, 'store' | 'servesWithoutStore'> {
  readonly providers: () => ProviderStates
  readonly runtime: Pick<Runtime, 'now' | 'after'>
}

export function statusEndpoints(
  { store, providers, circuits, servesWithoutStore }: StatusSources,
  { runtime }: Pick<Services, 'runtime'>,
): readonly Endpoint<Handler>[] {
  const states = (): ProviderStates => providerStates(providers, circuits())
  const status = { store, providers: states, runtime, servesWithoutStore }
  return [
    { method: 'GET', path: '/health', handle: health(status) },
    { method: 'GET', path: '/ready', handle: ready(status) },
    { method: 'GET', path: '', handle: greeting },
  ]
}

function providerStates(
  providers: StatusSources['providers'],
  circuits: Readonly<Record<string, CircuitReport>>,
): ProviderStates {
  const reports = Object.entries(circuits)
  return Object.fromEntries(
    providers.map(({ name }) => {
      const providerReports = reports.filter(([circuit]) => circuit.startsWith(`${name}/`)).map(([, report]) => report)
      return [name, stateOf(providerReports)]
    }),
  )
}

function stateOf(reports: readonly CircuitReport[]): ProviderState {
  if (reports.every(({ state }) => state === 'closed')) return 'healthy'
  return reports.every(({ state, isForAllKeys }) => state === 'open' && isForAllKeys) ? 'unavailable' : 'degraded'
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

function ready(dependencies: StatusDependencies): Handler {
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

const greeting: Handler = (call) => {
  const headers = { ...noStoreHeaders(call), 'content-type': 'text/plain; charset=utf-8' }
  call.sink.send(200, headers, 'sluice is running. Send requests to /v1 with a virtual key.\n')
}

function isStoreReachable({ store, runtime }: StatusDependencies): Promise<boolean> {
  return isTrueWithin(STORE_TIMEOUT_MS, () => store.ping().then(() => true), runtime)
}
