import type { HttpRequest } from '../core/http.ts'

/** A request as the platform knows it, without its body: for code of the operator's. */
export function webRequestOf(request: HttpRequest): Request {
  const headers = new Headers()
  for (const name of request.headerNames()) {
    const value = request.header(name)
    if (value !== undefined && !name.startsWith(':')) headers.set(name, value)
  }
  const query = request.query === '' ? '' : `?${request.query}`
  return new Request(`${request.origin}${request.path}${query}`, { method: request.method, headers })
}
