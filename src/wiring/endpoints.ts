import type { ProviderStates, Store } from '../core/ports.ts'
import { anthropicFormat } from '../formats/anthropic/format.ts'
import { openaiFormat } from '../formats/openai/format.ts'
import type { Endpoint } from '../http/router.ts'
import type { Services } from '../pipeline/services.ts'
import type { Traffic } from '../pipeline/traffic.ts'
import type { Directory } from '../providers/catalog.ts'
import { adminEndpoints, type AdminParts } from '../routes/admin.ts'
import type { BatchHandlers } from '../routes/batches.ts'
import type { Handler } from '../routes/endpoint.ts'
import { inTraffic } from '../routes/in-traffic.ts'
import { completions } from '../routes/completions.ts'
import type { ResponseHandlers } from '../routes/responses.ts'
import type { StatusParts } from '../routes/status.ts'
import { lazy } from '../core/lazy.ts'
import type { Batches } from './batches.ts'

export interface EndpointRooms {
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
export function endpoints(rooms: EndpointRooms): readonly Endpoint<Handler>[] {
  const { services, store, states, basePath, admin, traffic, servesWithoutStore } = rooms
  const status = { store, providers: states, runtime: services.runtime, servesWithoutStore }
  const batch = (name: keyof BatchHandlers): Handler => lazily(() => batchHandler(name, rooms))
  const storedResponse = (name: keyof ResponseHandlers): Handler => lazily(() => responseHandler(name, services))
  const table: readonly Endpoint<Handler>[] = [
    { method: 'POST', path: '/v1/chat/completions', handle: inTraffic(traffic, completions(openaiFormat, services)) },
    { method: 'POST', path: '/v1/messages', handle: inTraffic(traffic, completions(anthropicFormat, services)) },
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
    { method: 'GET', path: '/v1/models', handle: lazily(() => models('listModels', rooms)) },
    { method: 'GET', path: '/v1/models/*id', handle: lazily(() => models('getModel', rooms)) },
    { method: 'GET', path: '/health', handle: lazily(() => state('health', status)) },
    { method: 'GET', path: '/ready', handle: lazily(() => state('ready', status)) },
    ...adminEndpoints({ ...admin, line: services }),
  ]
  return table.map((endpoint) => ({ ...endpoint, path: basePath + endpoint.path }))
}

async function responses(services: Services): Promise<Handler> {
  const { responsesFormat } = await import('../formats/responses/format.ts')
  return completions(responsesFormat, services)
}

async function compact(services: Services): Promise<Handler> {
  const { compactFormat } = await import('../formats/responses/format.ts')
  return completions(compactFormat(), services)
}

async function responseHandler(name: keyof ResponseHandlers, services: Services): Promise<Handler> {
  const { responseHandlers } = await import('../routes/responses.ts')
  return responseHandlers(services)[name]
}

async function countTokens(services: Services): Promise<Handler> {
  const routes = await import('../routes/count-tokens.ts')
  return routes.countTokens(services)
}

async function state(name: 'health' | 'ready', parts: StatusParts): Promise<Handler> {
  const routes = await import('../routes/status.ts')
  return routes[name](parts)
}

async function models(name: 'listModels' | 'getModel', { directory, services }: EndpointRooms): Promise<Handler> {
  const listed = directory.list().map((route) => ({ ...route, provider: route.provider.name }))
  const routes = await import('../routes/models.ts')
  return routes[name](listed, services)
}

async function embeddings(services: Services): Promise<Handler> {
  const routes = await import('../routes/embeddings.ts')
  return routes.embeddings(services)
}

async function replayStream(services: Services): Promise<Handler> {
  const routes = await import('../routes/replay.ts')
  return routes.replayStream(anthropicFormat, services)
}

async function batchHandler(name: keyof BatchHandlers, { batches, services }: EndpointRooms): Promise<Handler> {
  const [{ batchHandlers }, { book, work }] = await Promise.all([import('../routes/batches.ts'), batches.room()])
  return batchHandlers({ book, wake: work.wake, line: services })[name]
}

/** A handler whose code is loaded by its first call; a failed import is tried again by the next one. */
function lazily(load: () => Promise<Handler>): Handler {
  const loaded = lazy(load)
  return async (call) => (await loaded())(call)
}
