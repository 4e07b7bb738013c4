import { GatewayError } from '../core/errors.ts'
import type { ProviderState, ProviderStates } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { chatClient } from '../formats/chat/client.ts'
import { messagesClient } from '../formats/messages/client.ts'
import { compactClient, responsesClient } from '../formats/responses/client.ts'
import { createRouter, type Endpoint, type Match, type Router } from '../http/router.ts'
import type { createBatchProcessing } from '../plugins/batches/batch-worker.ts'
import { embeddingStages } from '../plugins/embeddings/embedding-stages.ts'
import type { PassthroughOptions } from '../plugins/passthrough/parse-passthrough.ts'
import type { Services, RequestTracker } from './services.ts'
import type { ModelDirectory } from '../providers/catalog.ts'
import type { CircuitReport } from '../providers/circuit-breaker.ts'
import { adminEndpoints, type AdminDependencies } from '../plugins/admin/routes.ts'
import { batchEndpoints } from '../plugins/batches/routes.ts'
import { modelHandler, createExchange, IncomingCall, trackRequests, type Handler } from './run.ts'
import { greeting, health, ready } from '../plugins/status/status.ts'
import { passthroughEndpoints } from '../plugins/passthrough/routes.ts'
import { replayStream } from '../plugins/recordings/replay-stream.ts'
import { responseEndpoints } from '../plugins/stored-responses/routes.ts'
import { messageCountStages, responseCountStages } from '../plugins/token-counts/count-stages.ts'
import { getModel, listModels } from '../plugins/models/models.ts'

// Exported here, because each additional dynamic import would split shared code into more chunks.
export { writePrometheus } from '../plugins/metrics/prometheus.ts'
export { createAuthorize } from '../plugins/admin/routes.ts'
export { readAudit } from '../plugins/audit/audit-query.ts'
export { explainSavings } from '../plugins/savings/explain-plans.ts'
export { sendFailure } from './failure-response.ts'

export interface EndpointDependencies {
  readonly services: Services
  readonly directory: ModelDirectory
  readonly store: Store
  readonly servesWithoutStore: boolean
  readonly circuits: () => Readonly<Record<string, CircuitReport>>
  readonly providers: readonly { readonly name: string }[]
  readonly basePath: string
  readonly publicUrl: string | undefined
  readonly admin: Omit<AdminDependencies, 'services'>
  readonly requestTracker: RequestTracker
  readonly batches: { open(): Promise<ReturnType<typeof createBatchProcessing>> }
  readonly passthrough: PassthroughOptions | undefined
}

export function createFallbackHandler(
  modelEndpoints: readonly Endpoint<Handler>[],
  dependencies: EndpointDependencies,
): Handler {
  const { basePath } = dependencies
  const others = otherEndpoints(dependencies).map((endpoint) => ({ ...endpoint, path: basePath + endpoint.path }))
  const route = createRouter([...modelEndpoints, ...others, { method: 'GET', path: basePath || '/', handle: greeting }])
  return (call) => {
    const { id, startedAt, request, sink } = call
    const { handle, variables } = findEndpoint(route, request, basePath)
    return handle(new IncomingCall({ id, startedAt, request, sink }, variables))
  }
}

function findEndpoint(
  route: Router<Handler>,
  { method, path }: { readonly method: string; readonly path: string },
  basePath: string,
): Match<Handler> {
  let notFound: unknown
  for (const variant of pathVariants(path, basePath)) {
    try {
      return route(method, variant)
    } catch (error) {
      if (!GatewayError.is(error) || error.kind !== 'not-found') throw error
      notFound ??= error
    }
  }
  throw notFound
}

/** Some clients join a base URL and a path with doubled slashes, with a trailing slash, or without `/v1`. */
function pathVariants(path: string, basePath: string): readonly string[] {
  const normalized = path.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '')
  const isUnderBasePath = normalized.startsWith(`${basePath}/`)
  return isUnderBasePath ? [path, normalized, `${basePath}/v1${normalized.slice(basePath.length)}`] : [path, normalized]
}

function otherEndpoints(dependencies: EndpointDependencies): readonly Endpoint<Handler>[] {
  const { services, store, requestTracker, servesWithoutStore, directory, admin } = dependencies
  const states = (): ProviderStates => providerStates(dependencies.providers, dependencies.circuits())
  const status = { store, providers: states, runtime: services.runtime, servesWithoutStore }
  const models = directory.list().map((route) => ({ ...route, provider: route.provider.name }))
  const tracked = (handle: Handler): Handler => trackRequests(requestTracker, handle)
  return [
    {
      method: 'POST',
      path: '/v1/messages/count_tokens',
      handle: tracked((call) => messageCountStages.run(createExchange(call, messagesClient), services)),
    },
    ...batchEndpoints(services, dependencies.batches.open, dependencies),
    { method: 'POST', path: '/v1/messages/:id/streams', handle: replayStream(services) },
    {
      method: 'POST',
      path: '/v1/responses/input_tokens',
      handle: tracked((call) => responseCountStages.run(createExchange(call, responsesClient), services)),
    },
    { method: 'POST', path: '/v1/responses/compact', handle: tracked(modelHandler(compactClient, services)) },
    ...responseEndpoints(services),
    // The embeddings endpoint writes its errors in the chat format.
    {
      method: 'POST',
      path: '/v1/embeddings',
      handle: tracked((call) => embeddingStages.run(createExchange(call, chatClient), services)),
    },
    { method: 'GET', path: '/v1/models', handle: listModels(models, services) },
    { method: 'GET', path: '/v1/models/*id', handle: getModel(models, services) },
    { method: 'GET', path: '/health', handle: health(status) },
    { method: 'GET', path: '/ready', handle: ready(status) },
    ...passthroughEndpoints({ services, store, options: dependencies.passthrough ?? {} }),
    ...adminEndpoints({ ...admin, services }),
  ]
}

function providerStates(
  providers: readonly { readonly name: string }[],
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
