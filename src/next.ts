import type { HttpHandling } from './core/http.ts'
import { toFetch } from './http/web-handler.ts'

export type { HttpHandling } from './core/http.ts'

/** The methods that an app router route exports. */
export type NextMethod = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS'

/** An app router route handler. */
export type NextHandler = (request: Request) => Promise<Response>

/**
 * Returns the handlers for a catch-all route in the Next app router, `app/ai/[...path]/route.ts`:
 *
 * ```ts
 * const gateway = createGateway({ basePath: '/ai', … })
 * export const { GET, POST, PUT, DELETE } = toNext(gateway)
 * ```
 *
 * The gateway receives the full path, so its `basePath` is the path of the folder.
 */
export function toNext(gateway: HttpHandling): Readonly<Record<NextMethod, NextHandler>> {
  const fetch = toFetch(gateway)
  const handle: NextHandler = (request) => fetch(request)
  return { GET: handle, HEAD: handle, POST: handle, PUT: handle, PATCH: handle, DELETE: handle, OPTIONS: handle }
}
