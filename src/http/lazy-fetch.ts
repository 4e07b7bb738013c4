import { lazy } from '../core/async.ts'
import type { HttpHandling } from '../core/http.ts'
import type { FetchHandler, toFetch } from './web-handler.ts'
import { markGatewayFetch } from './gateway-fetch.ts'

/** Loads the code for Web-standard objects with the first call, because the Node adapters do not need it. */
export function lazyFetch(gateway: HttpHandling): FetchHandler {
  let fetch: ReturnType<typeof toFetch> | undefined
  const load = lazy(async () => (fetch = (await import('./web-handler.ts')).toFetch(gateway)))
  return markGatewayFetch(
    (input: Request | string | URL, init?: unknown) =>
      fetch?.(input, init) ?? load().then((loaded) => loaded(input, init)),
  )
}
