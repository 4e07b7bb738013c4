import type { ServerResponse } from 'node:http'
import type { Fetcher } from './http/fetcher.ts'
import { toNodeHandler, type NodeIncoming } from './http/node-bridge.ts'

export type { Fetcher } from './http/fetcher.ts'

/** What this adapter needs of an Express request, of any version. */
export interface ExpressRequest extends NodeIncoming {
  url?: string
  /** The address before Express took the mount path off. */
  readonly originalUrl?: string
}

export type ExpressHandler = (request: ExpressRequest, response: ServerResponse) => Promise<void>

/**
 * Makes an Express handler that answers every request it is given.
 *
 * ```ts
 * const gateway = createGateway({ basePath: '/ai', … })
 * app.use('/ai', toExpress(gateway))
 * ```
 *
 * The gateway sees the whole path, so its `basePath` is the mount path. Mount it before `express.json()` where you can:
 * a body that was parsed already is written as JSON again, which costs time, and Express answers broken JSON by itself.
 */
export function toExpress(gateway: Fetcher): ExpressHandler {
  const handle = toNodeHandler(gateway)
  return (request, response) => {
    request.url = request.originalUrl ?? request.url ?? '/'
    return handle(request, response)
  }
}
