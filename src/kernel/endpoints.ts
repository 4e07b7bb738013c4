import { isPromise, lazy } from '../core/async.ts'
import type { HttpRequest, ResponseSink } from '../core/http.ts'
import { CLIENT_FORMATS } from '../formats/dialects.ts'
import type { Endpoint } from '../http/router.ts'
import { IncomingCall, type Call, type Handler } from './call.ts'
import { trackRequests } from './request-tracker.ts'
import { modelHandler } from './run.ts'
import type { Services } from './services.ts'
import { requestIdOf } from './request-id.ts'

/** Answers a request, about whose caller the application may say more. Never throws. */
export type ContextHandler = (request: HttpRequest, sink: ResponseSink, context?: Call['context']) => void

/** @param onRequest Called for each request. */
export function createHandler(services: Services, basePath: string, onRequest: () => void): ContextHandler {
  const { runtime } = services
  const route = createRoutes(services, basePath)

  async function respondWithFailure(
    call: Pick<Call, 'id' | 'request' | 'sink' | 'context'>,
    error: unknown,
  ): Promise<void> {
    const { rejectCall } = await import('./fallback-handler.ts')
    await rejectCall(call, error, services)
  }

  const handle: ContextHandler = (request, sink, context) => {
    let id = ''
    try {
      id = requestIdOf(runtime.uuid())
      const start = { id, startedAt: runtime.now(), request, sink, context }
      onRequest()
      const done = route(request)(new IncomingCall(start, {}))
      if (isPromise(done)) done.catch((error: unknown) => respondWithFailure({ id, request, sink, context }, error))
    } catch (error) {
      void respondWithFailure(
        { id: id === '' ? requestIdOf(crypto.randomUUID()) : id, request, sink, context: undefined },
        error,
      )
    }
  }
  return handle
}

/** The router of all other paths, and the plugins' endpoints, are loaded with the first request to one of them. */
function createRoutes(services: Services, basePath: string): (request: HttpRequest) => Handler {
  const post = (path: string, load: () => Promise<Handler>): Endpoint<Handler> => ({
    method: 'POST',
    path: `${basePath}/v1/${path}`,
    handle: trackRequests(services.requestTracker, lazyHandler(load)),
  })
  const endpoints = [
    post('chat/completions', async () => modelHandler(await CLIENT_FORMATS.chat(), services)),
    post('messages', async () => modelHandler(await CLIENT_FORMATS.messages(), services)),
    post('responses', async () => modelHandler(await CLIENT_FORMATS.responses(), services)),
  ]
  const handlers = new Map(endpoints.map(({ path, handle }) => [path, handle]))
  const fallback = lazyHandler(async () =>
    (await import('./fallback-handler.ts')).createFallbackHandler(endpoints, services, basePath),
  )
  return ({ method, path }) => (method === 'POST' && handlers.get(path)) || fallback
}

function lazyHandler(load: () => Promise<Handler>): Handler {
  let loaded: Handler | undefined
  const ready = lazy(async () => (loaded = await load()))
  return (call) => (loaded === undefined ? ready().then((handle) => handle(call)) : loaded(call))
}
