import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { nodeHandlerOf } from './http/node-server.ts'
import { copyHeaders } from './http/node-http.ts'
import type { AdapterOptions, Served } from './http/served.ts'

export type { HttpHandling } from './core/http.ts'
export type { AdapterOptions, FetchHandling, Served } from './http/served.ts'

/** The part of a Fastify instance that this adapter uses. */
export interface FastifyScope {
  removeAllContentTypeParsers(): void
  addContentTypeParser(
    contentType: string,
    parser: (request: unknown, payload: unknown, done: (error: Error | null) => void) => void,
  ): unknown
  all(path: string, handler: (request: FastifyRequest, reply: FastifyReply) => Promise<void>): unknown
}

/** The part of a Fastify request that this adapter and most contexts use. */
export interface FastifyRequest {
  readonly raw: IncomingMessage
  readonly headers: IncomingHttpHeaders
  readonly url: string
}

/** The part of a Fastify reply that this adapter uses. */
export interface FastifyReply {
  readonly raw: ServerResponse
  getHeaders(): Readonly<Record<string, number | string | string[] | undefined>>
  hijack(): unknown
}

/** A Fastify plugin. */
export type FastifyPlugin = (scope: FastifyScope) => Promise<void>

/**
 * Returns a Fastify plugin that answers every request under its prefix.
 *
 * The gateway receives the full path, so its `basePath` must be the prefix. The plugin removes the body parsers of
 * its own scope only.
 *
 * @example
 * const gateway = createGateway({ basePath: '/ai', providers: [openai()] })
 * app.register(toFastify(gateway), { prefix: '/ai' })
 */
export function toFastify(gateway: Served, options: AdapterOptions<FastifyRequest> = {}): FastifyPlugin {
  const handle = nodeHandlerOf('toFastify', gateway, options)
  return async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null))
    scope.all('/*', (request, reply) => {
      // Fastify drops the headers that its hooks set (CORS, request ids) when a reply is hijacked.
      copyHeaders(reply.getHeaders(), reply.raw)
      reply.hijack()
      return handle(request.raw, reply.raw, request)
    })
  }
}
