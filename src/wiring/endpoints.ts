import { lazy } from '../core/lazy.ts'
import type { ProviderStates, Store } from '../core/ports.ts'
import { anthropicFormat } from '../formats/anthropic/format.ts'
import { openaiFormat } from '../formats/openai/format.ts'
import type { Endpoint } from '../http/router.ts'
import type { Parts } from '../pipeline/stages.ts'
import type { Traffic } from '../pipeline/traffic.ts'
import type { Directory } from '../providers/catalog.ts'
import { adminEndpoints, type AdminParts } from '../routes/admin.ts'
import type { BatchHandlers } from '../routes/batches.ts'
import { completions } from '../routes/completions.ts'
import type { Handler } from '../routes/endpoint.ts'
import { inTraffic } from '../routes/in-traffic.ts'
import { getModel, listModels } from '../routes/models.ts'
import { deleteResponse, getResponse } from '../routes/responses.ts'
import { health, ready } from '../routes/status.ts'
import type { Batches } from './batches.ts'

export interface EndpointRooms {
  readonly parts: Parts
  readonly directory: Directory
  readonly store: Store
  readonly states: () => ProviderStates
  readonly basePath: string
  readonly admin: Omit<AdminParts, 'line'>
  readonly traffic: Traffic
  readonly batches: Batches
}

/** Every path of the gateway: one look at this table is its HTTP interface. */
export function endpoints(rooms: EndpointRooms): readonly Endpoint<Handler>[] {
  const { parts, directory, store, states, basePath, admin, traffic } = rooms
  const listed = directory.list().map(({ name, provider, model }) => ({ name, provider: provider.name, model }))
  const status = { store, providers: states, runtime: parts.runtime }
  const batch = (name: keyof BatchHandlers): Handler => lazily(() => batchHandler(name, rooms))
  const table: readonly Endpoint<Handler>[] = [
    { method: 'POST', path: '/v1/chat/completions', handle: inTraffic(traffic, completions(openaiFormat, parts)) },
    { method: 'POST', path: '/v1/messages', handle: inTraffic(traffic, completions(anthropicFormat, parts)) },
    {
      method: 'POST',
      path: '/v1/messages/count_tokens',
      handle: inTraffic(
        traffic,
        lazily(() => countTokens(parts)),
      ),
    },
    { method: 'POST', path: '/v1/messages/batches', handle: batch('create') },
    { method: 'GET', path: '/v1/messages/batches', handle: batch('list') },
    { method: 'GET', path: '/v1/messages/batches/:id', handle: batch('read') },
    { method: 'POST', path: '/v1/messages/batches/:id/cancel', handle: batch('cancel') },
    { method: 'GET', path: '/v1/messages/batches/:id/results', handle: batch('results') },
    { method: 'DELETE', path: '/v1/messages/batches/:id', handle: batch('remove') },
    { method: 'POST', path: '/v1/messages/:id/streams', handle: lazily(() => replayStream(parts)) },
    {
      method: 'POST',
      path: '/v1/responses',
      handle: inTraffic(
        traffic,
        lazily(() => responses(parts)),
      ),
    },
    { method: 'GET', path: '/v1/responses/:id', handle: getResponse(parts) },
    { method: 'DELETE', path: '/v1/responses/:id', handle: deleteResponse(parts) },
    {
      method: 'POST',
      path: '/v1/embeddings',
      handle: inTraffic(
        traffic,
        lazily(() => embeddings(parts)),
      ),
    },
    { method: 'GET', path: '/v1/models', handle: listModels(listed, parts) },
    { method: 'GET', path: '/v1/models/*id', handle: getModel(listed, parts) },
    { method: 'GET', path: '/health', handle: health(status) },
    { method: 'GET', path: '/ready', handle: ready(status) },
    ...adminEndpoints({ ...admin, line: parts }),
  ]
  return table.map((endpoint) => ({ ...endpoint, path: basePath + endpoint.path }))
}

async function responses(parts: Parts): Promise<Handler> {
  const { responsesFormat } = await import('../formats/responses/format.ts')
  return completions(responsesFormat, parts)
}

async function countTokens(parts: Parts): Promise<Handler> {
  const routes = await import('../routes/count-tokens.ts')
  return routes.countTokens(parts)
}

async function embeddings(parts: Parts): Promise<Handler> {
  const routes = await import('../routes/embeddings.ts')
  return routes.embeddings(parts)
}

async function replayStream(parts: Parts): Promise<Handler> {
  const routes = await import('../routes/replay.ts')
  return routes.replayStream(anthropicFormat, parts)
}

async function batchHandler(name: keyof BatchHandlers, { batches, parts }: EndpointRooms): Promise<Handler> {
  const [{ batchHandlers }, { book, work }] = await Promise.all([import('../routes/batches.ts'), batches.room()])
  return batchHandlers({ book, wake: work.wake, line: parts })[name]
}

/** A handler whose code is loaded by its first call. */
function lazily(load: () => Promise<Handler>): Handler {
  const handler = lazy(load)
  return async (call) => (await handler())(call)
}
