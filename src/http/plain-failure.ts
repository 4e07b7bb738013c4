import type { HeaderRecord } from '../core/http.ts'

/** An error that the official clients of every format can read, for failures outside of the gateway. */
export function plainFailure(
  status: 400 | 500,
  message: string,
): { status: number; headers: HeaderRecord; body: string } {
  const type = status === 400 ? 'invalid_request_error' : 'api_error'
  const body = JSON.stringify({ type: 'error', error: { type, message, param: null, code: null } })
  return { status, headers: { 'content-type': 'application/json' }, body }
}
