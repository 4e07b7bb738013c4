import type { ServerResponse } from 'node:http'
import type { HttpHandling } from './core/http.ts'
import { toNodeHandler } from './http/node-server.ts'
import type { NodeIncoming } from './http/node-request.ts'

export type { HttpHandling } from './core/http.ts'

/** What this adapter needs of an Express request, of any version. */
export interface ExpressRequest extends NodeIncoming {
  url?: string
  /** The address before Express took the mount path off. */
  readonly originalUrl?: string
}

/** A request handler of Express. */
export type ExpressHandler = (request: ExpressRequest, response: ServerResponse) => Promise<void>

/**
 * Makes an Express handler that answers every request it is given.
 *
 * ```ts
 * const gateway = createGateway({ basePath: '/ai', … })
 * app.use('/ai', toExpress(gateway))
 * ```
 *
 * The gateway sees the whole path, so its `basePath` is the mount path. Mount it before `express.json()` when you can:
 * a parsed body is serialized again, which costs time, and Express answers broken JSON itself.
 */
export function toExpress(gateway: HttpHandling): ExpressHandler {
  const handle = toNodeHandler(gateway)
  return (request, response) => {
    request.url = request.originalUrl ?? request.url ?? '/'
    return handle(request, response)
  }
}
