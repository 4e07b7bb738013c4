import { GatewayError } from '../core/errors.ts'

export const MAX_PAGE_SIZE = 1000

export function readLimit(query: URLSearchParams, fallback: number): number {
  const limit = query.has('limit') ? Number(query.get('limit')) : fallback
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_PAGE_SIZE) return limit
  throw new GatewayError(
    'invalid-request',
    `limit is ${String(query.get('limit')).slice(0, 20)}; expected an integer from 1 to ${MAX_PAGE_SIZE}.`,
    { param: 'limit' },
  )
}
