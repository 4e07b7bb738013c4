import { checkOptions, expects, type OptionCheck } from '../core/check-options.ts'
import type { HttpHandling } from '../core/http.ts'

/** An object with a Web-standard handler, such as a wrapper around `gateway.fetch`. */
export interface FetchHandling {
  fetch(request: Request): Response | Promise<Response>
}

/** What the adapters accept: a gateway, or any object with a Web-standard handler. */
export type Served = HttpHandling | FetchHandling

const checkServed: OptionCheck = /* @__PURE__ */ expects(
  'a gateway, or an object with the function fetch: (request) => Response',
  (value) => hasFunction(value, 'handle') || hasFunction(value, 'fetch'),
)

/**
 * Returns true if the adapter must call `fetch`. A copy of a gateway with another `fetch`, such as
 * `{ ...gateway, fetch: withLogin }`, still has the `handle` of the gateway, which would skip the login.
 *
 * @param name The function that reports an invalid value.
 */
export function servesFetch(name: string, served: Served): served is FetchHandling {
  checkOptions(name, served, checkServed)
  return hasFunction(served, 'fetch') && !(hasFunction(served, 'handle') && isGatewayFetch(served.fetch))
}

/** Marks the `fetch` that calls the `handle` of its gateway. */
export function markGatewayFetch<Fetch extends object>(fetch: Fetch): Fetch {
  return Object.assign(fetch, { isGatewayFetch: true })
}

function isGatewayFetch(fetch: object): boolean {
  return 'isGatewayFetch' in fetch
}

/** Excludes functions: an Express application has a `handle` with other parameters. */
function hasFunction<Name extends string>(value: unknown, name: Name): value is Record<Name, () => unknown> {
  return typeof value === 'object' && value !== null && typeof Reflect.get(value, name) === 'function'
}
