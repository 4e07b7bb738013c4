import type { ProviderStates, Store } from '../core/ports.ts'
import { createRouter, type Endpoint, type Method } from '../http/router.ts'
import type { Services } from '../pipeline/services.ts'
import type { Traffic } from '../pipeline/traffic.ts'
import type { Directory } from '../providers/catalog.ts'
import type { AdminParts } from '../routes/admin.ts'
import type { BatchHandlers } from '../routes/batches.ts'
import { IncomingCall, type Handler } from '../routes/endpoint.ts'
import { inTraffic } from '../routes/in-traffic.ts'
import { completions } from '../routes/completions.ts'
import type { ResponseHandlers } from '../routes/responses.ts'
import type { StatusParts } from '../routes/status.ts'
import { lazy } from '../core/lazy.ts'
import type { Batches } from './batches.ts'

export interface EndpointParts {
  readonly services: Services
  readonly directory: Directory
  readonly store: Store
  readonly servesWithoutStore: boolean
  readonly states: () => ProviderStates
  readonly basePath: string
  readonly admin: Omit<AdminParts, 'line'>
  readonly traffic: Traffic
  readonly batches: Batches
}

/** Every path of the gateway: one look at this table is its HTTP interface. */
export function endpoints(parts: EndpointParts): readonly Endpoint<Handler>[] {
  const { services, store, states, basePath, traffic, servesWithoutStore } = parts
  const status = { store, providers: states, runtime: services.runtime, servesWithoutStore }
  const batch = (name: keyof BatchHandlers): Handler => lazily(() => batchHandler(name, parts))
  const storedResponse = (name: keyof ResponseHandlers): Handler => lazily(() => responseHandler(name, services))
  const table: readonly Endpoint<Handler>[] = [
    {
      method: 'POST',
      path: '/v1/chat/completions',
      handle: inTraffic(
        traffic,
        lazily(() => chat(services)),
      ),
    },
    {
      method: 'POST',
      path: '/v1/messages',
      handle: inTraffic(
        traffic,
        lazily(() => messages(services)),
      ),
    },
    {
      method: 'POST',
      path: '/v1/messages/count_tokens',
      handle: inTraffic(
        traffic,
        lazily(() => countTokens(services)),
      ),
    },
    { method: 'POST', path: '/v1/messages/batches', handle: batch('create') },
    { method: 'GET', path: '/v1/messages/batches', handle: batch('list') },
    { method: 'GET', path: '/v1/messages/batches/:id', handle: batch('read') },
    { method: 'POST', path: '/v1/messages/batches/:id/cancel', handle: batch('cancel') },
    { method: 'GET', path: '/v1/messages/batches/:id/results', handle: batch('results') },
    { method: 'DELETE', path: '/v1/messages/batches/:id', handle: batch('remove') },
    { method: 'POST', path: '/v1/messages/:id/streams', handle: lazily(() => replayStream(services)) },
    {
      method: 'POST',
      path: '/v1/responses',
      handle: inTraffic(
        traffic,
        lazily(() => responses(services)),
      ),
    },
    {
      method: 'POST',
      path: '/v1/responses/compact',
      handle: inTraffic(
        traffic,
        lazily(() => compact(services)),
      ),
    },
    { method: 'GET', path: '/v1/responses/:id', handle: storedResponse('read') },
    { method: 'DELETE', path: '/v1/responses/:id', handle: storedResponse('remove') },
    { method: 'POST', path: '/v1/responses/:id/cancel', handle: storedResponse('cancel') },
    { method: 'GET', path: '/v1/responses/:id/input_items', handle: storedResponse('inputItems') },
    {
      method: 'POST',
      path: '/v1/embeddings',
      handle: inTraffic(
        traffic,
        lazily(() => embeddings(services)),
      ),
    },
    { method: 'GET', path: '/v1/models', handle: lazily(() => models('listModels', parts)) },
    { method: 'GET', path: '/v1/models/*id', handle: lazily(() => models('getModel', parts)) },
    { method: 'GET', path: '/health', handle: lazily(() => state('health', status)) },
    { method: 'GET', path: '/ready', handle: lazily(() => state('ready', status)) },
    ...adminPaths(parts),
  ]
  return table.map((endpoint) => ({ ...endpoint, path: basePath + endpoint.path }))
}

const routes = lazy(() => import('../routes/on-demand.ts'))

const METHODS: readonly Method[] = ['GET', 'POST', 'PUT', 'DELETE']

/** The admin API and the metrics, in a router of their own, which is loaded with the first of their requests. */
function adminPaths({ admin, services, basePath }: EndpointParts): readonly Endpoint<Handler>[] {
  const load = lazy(async () => {
    const { adminEndpoints } = await routes()
    const table = adminEndpoints({ ...admin, line: services })
    return createRouter(table.map((endpoint) => ({ ...endpoint, path: basePath + endpoint.path })))
  })
  const handle: Handler = async (call) => {
    const { id, startedAt, request, sink } = call
    const route = await load()
    const found = route(request.method, request.path)
    return found.handle(new IncomingCall({ id, startedAt, request, sink }, found.variables))
  }
  const paths = METHODS.map((method) => ({ method, path: '/api/governance/*path', handle }))
  return [...paths, { method: 'GET', path: '/metrics', handle }, { method: 'GET', path: '/metrics/cache', handle }]
}

async function chat(services: Services): Promise<Handler> {
  const { chatClient } = await import('../formats/chat/client.ts')
  return completions(chatClient, services)
}

async function messages(services: Services): Promise<Handler> {
  const { messagesClient } = await import('../formats/messages/client.ts')
  return completions(messagesClient, services)
}

async function responses(services: Services): Promise<Handler> {
  const { responsesClient } = await import('../formats/responses/client.ts')
  return completions(responsesClient, services)
}

async function compact(services: Services): Promise<Handler> {
  const { compactClient } = await import('../formats/responses/client.ts')
  return completions(compactClient(), services)
}

async function responseHandler(name: keyof ResponseHandlers, services: Services): Promise<Handler> {
  const { responseHandlers } = await routes()
  return responseHandlers(services)[name]
}

async function countTokens(services: Services): Promise<Handler> {
  return (await routes()).countTokens(services)
}

async function state(name: 'health' | 'ready', parts: StatusParts): Promise<Handler> {
  return (await routes())[name](parts)
}

async function models(name: 'listModels' | 'getModel', { directory, services }: EndpointParts): Promise<Handler> {
  const listed = directory.list().map((route) => ({ ...route, provider: route.provider.name }))
  return (await routes())[name](listed, services)
}

async function embeddings(services: Services): Promise<Handler> {
  return (await routes()).embeddings(services)
}

async function replayStream(services: Services): Promise<Handler> {
  return (await routes()).replayStream(services)
}

async function batchHandler(name: keyof BatchHandlers, { batches, services }: EndpointParts): Promise<Handler> {
  const [{ batchHandlers }, { book, work }] = await Promise.all([routes(), batches.room()])
  return batchHandlers({ book, wake: work.wake, line: services })[name]
}

/** A handler whose code is loaded by its first call; a failed import is tried again by the next one. */
function lazily(load: () => Promise<Handler>): Handler {
  let loaded: Handler | undefined
  const ready = lazy(async () => (loaded = await load()))
  return (call) => (loaded === undefined ? ready().then((handle) => handle(call)) : loaded(call))
}
