/** Anything that answers requests: a gateway, or in a test a function like one. */
export interface Fetcher {
  readonly fetch: (request: Request) => Promise<Response>
}

/**
 * Asks, and answers for a fetcher that throws: a server must never leave its caller without a response.
 * A gateway turns its own failures into responses, so only a fault of the program comes by here; its text may hold
 * secrets and is not passed on.
 */
export async function answer(fetcher: Fetcher, request: Request): Promise<Response> {
  try {
    return await fetcher.fetch(request)
  } catch {
    return failure(500, 'The gateway failed to answer this request. Try again; if it fails again, tell its operator.')
  }
}

/** An error that the official clients of both formats can read, for what fails outside of the gateway. */
export function failure(status: 400 | 500, message: string): Response {
  const type = status === 400 ? 'invalid_request_error' : 'api_error'
  return Response.json({ type: 'error', error: { type, message, param: null, code: null } }, { status })
}
