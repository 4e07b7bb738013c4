import type { HttpRequest } from '../core/http.ts'
import { GatewayError } from '../core/errors.ts'

const KEY_HEADERS = ['x-bf-vk', 'x-api-key'] as const

/**
 * Returns the caller's secret from `x-bf-vk`, `x-api-key` or `Authorization: Bearer`, or undefined. Throws for two
 * different secrets, because the key of the request would be ambiguous.
 */
export function readSecret(request: Pick<HttpRequest, 'header'>): string | undefined {
  let secret = readBearer(request)
  for (const name of KEY_HEADERS) {
    const value = request.header(name)
    if (value === undefined || value === '') continue
    const given = value.trim()
    if (secret !== undefined && given !== secret) throw twoKeys()
    secret = given
  }
  return secret
}

function twoKeys(): GatewayError {
  return new GatewayError(
    'unauthenticated',
    'The request contains two different keys. Send the key once, as x-bf-vk, x-api-key or Authorization: Bearer.',
  )
}

/** Returns the token of `Authorization: Bearer <token>`. */
export function readBearer(request: Pick<HttpRequest, 'header'>): string | undefined {
  const value = request.header('authorization')
  if (value === undefined || value.slice(0, 7).toLowerCase() !== 'bearer ') return undefined
  const token = value.slice(7).trim()
  return token === '' ? undefined : token
}
