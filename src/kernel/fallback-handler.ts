/** The router of all paths except those of model requests. Loaded with the first request to one of them. */
import { GatewayError } from '../core/errors.ts'
import { createRouter, type Endpoint, type Match, type Router } from '../http/router.ts'
import { IncomingCall, type Handler } from './call.ts'
import { trackRequests } from './request-tracker.ts'
import { modelHandler } from './run.ts'
import type { Services } from './services.ts'
import { compactClient } from '../formats/responses/client.ts'

// Exported here, because each additional dynamic import would split shared code into more chunks.
export { rejectCall } from './reject-call.ts'

export async function createFallbackHandler(
  modelEndpoints: readonly Endpoint<Handler>[],
  services: Services,
  basePath: string,
): Promise<Handler> {
  const lists = await Promise.all(services.hooks.endpoints.map((endpointsOf) => endpointsOf(services)))
  const others = lists.flat().map((endpoint) => ({ ...endpoint, path: basePath + endpoint.path || '/' }))
  const compact = trackRequests(services.requestTracker, modelHandler(compactClient, services))
  const route = createRouter([
    ...modelEndpoints,
    { method: 'POST', path: `${basePath}/v1/responses/compact`, handle: compact },
    ...others,
  ])
  return (call) => {
    const { id, startedAt, request, sink, context } = call
    const { handle, variables } = findEndpoint(route, request, basePath)
    return handle(new IncomingCall({ id, startedAt, request, sink, context }, variables))
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
