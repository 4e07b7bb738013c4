import type { HttpRequest } from '../core/http.ts'
import { GatewayError } from '../core/errors.ts'

const KEY_HEADERS = ['x-bf-vk', 'x-api-key'] as const

/**
 * The caller's secret from `x-bf-vk`, `x-api-key` or `Authorization: Bearer`, undefined when there is none.
 * Two different secrets at once are refused: nobody can say whose request it would be.
 */
export function readSecret(request: Pick<HttpRequest, 'header'>): string | undefined {
  const found = new Set<string>()
  for (const name of KEY_HEADERS) {
    const value = request.header(name)
    if (value !== undefined && value !== '') found.add(value.trim())
  }
  const bearer = readBearer(request)
  if (bearer !== undefined) found.add(bearer)
  if (found.size > 1) {
    throw new GatewayError(
      'unauthenticated',
      'The request carries two different keys. Send the key once, as x-bf-vk, x-api-key or Authorization: Bearer.',
    )
  }
  const [secret] = found
  return secret
}

/** The token of `Authorization: Bearer <token>`. */
export function readBearer(request: Pick<HttpRequest, 'header'>): string | undefined {
  const value = request.header('authorization')
  if (value === undefined || value.slice(0, 7).toLowerCase() !== 'bearer ') return undefined
  const token = value.slice(7).trim()
  return token === '' ? undefined : token
}
