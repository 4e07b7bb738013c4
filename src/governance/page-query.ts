import { GatewayError } from '../core/errors.ts'
import type { PageQuery } from './record-table.ts'

const DEFAULT_PAGE = 100
const GREATEST_PAGE = 1000

/** A page of a list as it was asked for. Throws `invalid-admin-request` for a limit that is none. */
export function pageQuery(given: { readonly limit?: number; readonly after?: string }): PageQuery {
  const { limit = DEFAULT_PAGE, after } = given
  if (!Number.isInteger(limit) || limit < 1 || limit > GREATEST_PAGE) {
    throw new GatewayError('invalid-admin-request', `limit: a whole number from 1 to ${GREATEST_PAGE} was expected.`, {
      param: 'limit',
    })
  }
  return after === undefined ? { limit } : { limit, after }
}
