import type { AdapterOptions, Served } from './http/served.ts'
import { webHandlerOf } from './http/web-handler.ts'

export type { HttpHandling } from './core/http.ts'
export type { AdapterOptions, FetchHandling, Served } from './http/served.ts'

/** The HTTP methods that an App Router route can export. */
export type NextMethod = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS'

/** A route handler of the App Router. */
export type NextHandler = (request: Request) => Promise<Response>

/**
 * Returns the handlers for a catch-all route in the Next.js App Router, `app/ai/[...path]/route.ts`.
 *
 * The gateway receives the full path, so its `basePath` must be the URL path of the folder, `/ai`.
 *
 * @example
 * const gateway = createGateway({ basePath: '/ai', providers: [openai()] })
 * export const { GET, POST, PUT, DELETE } = toNext(gateway)
 */
export function toNext(
  gateway: Served,
  options: AdapterOptions<Request> = {},
): Readonly<Record<NextMethod, NextHandler>> {
  const respond = webHandlerOf('toNext', gateway, options)
  // Next passes a second argument, which is not for the gateway.
  const handle: NextHandler = (request) => respond(request)
  return { GET: handle, HEAD: handle, POST: handle, PUT: handle, PATCH: handle, DELETE: handle, OPTIONS: handle }
}
