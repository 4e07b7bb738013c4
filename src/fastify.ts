import type { IncomingMessage, ServerResponse } from 'node:http'
import type { HttpHandling } from './core/http.ts'
import { toNodeHandler } from './http/node-server.ts'
import { keepHeaders } from './http/node-sink.ts'

export type { HttpHandling } from './core/http.ts'

/** What this adapter needs of a Fastify instance, of any version. */
export interface FastifyScope {
  removeAllContentTypeParsers(): void
  addContentTypeParser(
    contentType: string,
    parser: (request: unknown, payload: unknown, done: (error: Error | null) => void) => void,
  ): unknown
  all(path: string, handler: (request: FastifyRequest, reply: FastifyReply) => Promise<void>): unknown
}

/** The part of a Fastify request that this adapter needs, of any version. */
export interface FastifyRequest {
  readonly raw: IncomingMessage
}

/** The part of a Fastify reply that this adapter needs, of any version. */
export interface FastifyReply {
  readonly raw: ServerResponse
  getHeaders(): Readonly<Record<string, number | string | string[] | undefined>>
  hijack(): unknown
}

/** A plugin of Fastify. */
export type FastifyPlugin = (scope: FastifyScope) => Promise<void>

/**
 * Makes a Fastify plugin that answers every request under its prefix.
 *
 * ```ts
 * const gateway = createGateway({ basePath: '/ai', … })
 * app.register(toFastify(gateway), { prefix: '/ai' })
 * ```
 *
 * The gateway sees the whole path, so its `basePath` is the prefix. The body parsers are removed within the plugin only.
 */
export function toFastify(gateway: HttpHandling): FastifyPlugin {
  const handle = toNodeHandler(gateway)
  return async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null))
    scope.all('/*', (request, reply) => {
      // Fastify forgets the headers of its hooks (CORS, request ids) when a reply is taken over.
      keepHeaders(reply.getHeaders(), reply.raw)
      reply.hijack()
      return handle(request.raw, reply.raw)
    })
  }
}
