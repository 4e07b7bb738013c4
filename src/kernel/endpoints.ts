import { isPromise, lazy } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { HttpHandler, HttpHandling, HttpRequest } from '../core/http.ts'
import type { Runtime } from '../core/ports.ts'
import type { Endpoint } from '../http/router.ts'
import { markGatewayFetch } from '../http/served.ts'
import type { FetchHandler, toFetch } from '../http/web-handler.ts'
import { requestIdOf } from './exchange.ts'
import type { AdminOptions, Authorize } from '../plugins/admin/routes.ts'
import { modelHandler, IncomingCall, trackRequests, type Call, type Handler } from './run.ts'
import type { EndpointDependencies } from './fallback-handler.ts'

export function createHandler(dependencies: EndpointDependencies, onRequest: () => void): HttpHandler {
  const { services } = dependencies
  const { runtime } = services
  const route = createRoutes(dependencies)

  async function answerWithFailure(call: Pick<Call, 'id' | 'request' | 'sink'>, error: unknown): Promise<void> {
    const { sendFailure } = await import('./fallback-handler.ts')
    await sendFailure(call, error, services)
  }

  return (request, sink) => {
    let id = ''
    try {
      id = requestIdOf(runtime.uuid())
      const start = { id, startedAt: runtime.now(), request, sink }
      onRequest()
      const done = route(request)(new IncomingCall(start, {}))
      if (isPromise(done)) done.catch((error: unknown) => answerWithFailure({ id, request, sink }, error))
    } catch (error) {
      void answerWithFailure({ id: id === '' ? requestIdOf(crypto.randomUUID()) : id, request, sink }, error)
    }
  }
}

/** The router of all other paths is loaded with the first request to one of them. */
function createRoutes(dependencies: EndpointDependencies): (request: HttpRequest) => Handler {
  const { services, requestTracker, basePath } = dependencies
  checkProviders(dependencies)
  const post = (path: string, load: () => Promise<Handler>): Endpoint<Handler> => ({
    method: 'POST',
    path: `${basePath}/v1/${path}`,
    handle: trackRequests(requestTracker, lazyHandler(load)),
  })
  const endpoints = [
    post('chat/completions', async () =>
      modelHandler((await import('../formats/chat/client.ts')).chatClient, services),
    ),
    post('messages', async () =>
      modelHandler((await import('../formats/messages/client.ts')).messagesClient, services),
    ),
    post('responses', async () =>
      modelHandler((await import('../formats/responses/client.ts')).responsesClient, services),
    ),
  ]
  const handlers = new Map(endpoints.map(({ path, handle }) => [path, handle]))
  const fallback = lazyHandler(async () =>
    (await import('./fallback-handler.ts')).createFallbackHandler(endpoints, dependencies),
  )
  return ({ method, path }) => (method === 'POST' && handlers.get(path)) || fallback
}

function checkProviders({ passthrough = {}, directory }: EndpointDependencies): void {
  for (const [name, { provider }] of Object.entries(passthrough)) {
    if (provider === undefined || directory.provider(provider) !== undefined) continue
    const param = `passthrough.${name}.provider`
    throw new GatewayError(
      'invalid-request',
      `createGateway: ${param}: no provider "${provider}" is configured. Use the name of a configured provider.`,
      { param },
    )
  }
}

function lazyHandler(load: () => Promise<Handler>): Handler {
  let loaded: Handler | undefined
  const ready = lazy(async () => (loaded = await load()))
  return (call) => (loaded === undefined ? ready().then((handle) => handle(call)) : loaded(call))
}

export function lazyAuthorize(admin: AdminOptions | undefined, runtime: Pick<Runtime, 'after'>): Authorize {
  const load = lazy(async () => (await import('./fallback-handler.ts')).createAuthorize(admin, runtime))
  return async (request, limits) => (await load())(request, limits)
}

export function lazyFetch(gateway: HttpHandling): FetchHandler {
  let fetch: ReturnType<typeof toFetch> | undefined
  const load = lazy(async () => (fetch = (await import('../http/web-handler.ts')).toFetch(gateway)))
  return markGatewayFetch(
    (input: Request | string | URL, init?: unknown) =>
      fetch?.(input, init) ?? load().then((loaded) => loaded(input, init)),
  )
}
