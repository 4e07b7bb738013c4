import { checkOptions, expects, functionCheck, type OptionCheck, optionsOf } from '../core/check-options.ts'
import type { MaybePromise } from '../core/async.ts'
import type { CallerContext } from '../core/caller-context.ts'
import type { HttpHandling, HttpRequest, ResponseSink } from '../core/http.ts'
import { isGatewayFetch } from './gateway-fetch.ts'

/** An object with a Web-standard handler, such as a wrapper around `gateway.fetch`. */
export interface FetchHandling {
  fetch(request: Request): Response | Promise<Response>
}

/** What the adapters accept: a gateway, or any object with a Web-standard handler. */
export type Served = HttpHandling | FetchHandling

/** Options of an adapter. */
export interface AdapterOptions<FrameworkRequest> {
  /**
   * Returns who makes a request, as for `gateway.with()`, or undefined for a request without a context. Not called for the
   * health check, the metrics and the admin API. A request is refused with 401 if the function throws or rejects, returns an
   * invalid context, or takes longer than 10 seconds. The error is logged, and not sent to the caller. @default no context
   */
  context?(request: FrameworkRequest): MaybePromise<CallerContext | undefined>
}

export const ADAPTER_CHECKS: Record<keyof AdapterOptions<unknown>, OptionCheck> = {
  context: /* @__PURE__ */ functionCheck('context(request)'),
}

export const checkAdapterOptions: OptionCheck = /* @__PURE__ */ optionsOf(ADAPTER_CHECKS)

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

/** The `handle` of a gateway, which also takes a function that returns the context of the caller. */
export interface ContextHandling {
  handle(request: HttpRequest, sink: ResponseSink, findContext: () => unknown): void
}

/** Throws if the result of `context` could not be passed on: to another `fetch`, or to a bound gateway. */
export function checkTakesContext(name: string, served: Served): asserts served is Served & ContextHandling {
  checkOptions(
    name,
    served,
    expects(
      'a gateway, because only a gateway takes a context',
      () => !servesFetch(name, served) && hasFunction(served, 'with'),
    ),
  )
}

/** Excludes functions: an Express application has a `handle` with other parameters. */
function hasFunction<Name extends string>(value: unknown, name: Name): value is Record<Name, () => unknown> {
  return typeof value === 'object' && value !== null && typeof Reflect.get(value, name) === 'function'
}
