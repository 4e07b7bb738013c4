import type { ServerResponse } from 'node:http'
import { nodeHandlerOf } from './http/node-server.ts'
import type { NodeIncoming } from './http/node-http.ts'
import type { AdapterOptions, Served } from './http/served.ts'

export type { HttpHandling } from './core/http.ts'
export type { AdapterOptions, FetchHandling, Served } from './http/served.ts'

/** The part of an Express request that this adapter uses. */
export interface ExpressRequest extends NodeIncoming {
  url?: string
  /** The URL before Express removed the mount path. */
  readonly originalUrl?: string
}

/** An Express request handler. */
export type ExpressHandler = (request: ExpressRequest, response: ServerResponse) => Promise<void>

/**
 * Returns an Express handler that answers every request.
 *
 * The gateway receives the full path, so its `basePath` must be the mount path. Mount the handler before
 * `express.json()`. Otherwise, Express itself rejects requests with invalid JSON or large bodies, and the gateway
 * serializes the parsed bodies again.
 *
 * @example
 * const gateway = createGateway({ basePath: '/ai', providers: [openai()] })
 * app.use('/ai', toExpress(gateway))
 *
 * @example
 * app.use('/ai', toExpress(gateway, { context: (request) => ({ customer: request.originalUrl?.split('/')[2] }) }))
 */
export function toExpress(gateway: Served, options: AdapterOptions<ExpressRequest> = {}): ExpressHandler {
  const handle = nodeHandlerOf('toExpress', gateway, options)
  return (request, response) => {
    request.url = request.originalUrl ?? request.url ?? '/'
    return handle(request, response, request)
  }
}
