import { GatewayError } from '../core/errors.ts'
import { lazy } from '../core/async.ts'
import { createRouter, type Endpoint, type Router } from '../http/router.ts'
import { completions, type Handler, inTraffic } from '../routes/endpoint.ts'
import type { EndpointParts } from './further-endpoints.ts'

/**
 * Creates the endpoints of model calls. All other endpoints are in `further-endpoints.ts`, which is loaded with their
 * first request.
 */
export function createRoutes(parts: EndpointParts): Router<Handler> {
  const { services, traffic, basePath } = parts
  checkProviders(parts)
  const post = (path: string, handle: Handler): Endpoint<Handler> => ({
    method: 'POST',
    path: `${basePath}/v1/${path}`,
    handle: inTraffic(traffic, handle),
  })
  const endpoints = [
    post(
      'chat/completions',
      lazily(async () => completions((await import('../formats/chat/client.ts')).chatClient, services)),
    ),
    post(
      'messages',
      lazily(async () => completions((await import('../formats/messages/client.ts')).messagesClient, services)),
    ),
    post(
      'responses',
      lazily(async () => completions((await import('../formats/responses/client.ts')).responsesClient, services)),
    ),
  ]
  const others = lazily(async () => (await import('./on-demand.ts')).furtherHandler(endpoints, parts))
  return createRouter(endpoints, others)
}

/** Throws for an endpoint without a provider. */
function checkProviders({ passthrough = {}, directory }: EndpointParts): void {
  for (const [name, { provider }] of Object.entries(passthrough)) {
    if (provider === undefined || directory.provider(provider) !== undefined) continue
    const param = `passthrough.${name}.provider`
    throw new GatewayError('invalid-request', `createGateway: ${param}: no provider "${provider}" is configured.`, {
      param,
    })
  }
}

/** Returns a handler that loads its code on the first call. After a failed import, the next call loads again. */
function lazily(load: () => Promise<Handler>): Handler {
  let loaded: Handler | undefined
  const ready = lazy(async () => (loaded = await load()))
  return (call) => (loaded === undefined ? ready().then((handle) => handle(call)) : loaded(call))
}
