import { GatewayError } from '../core/errors.ts'
import { isSafeId, type PageQuery } from './record-table.ts'

const DEFAULT_PAGE = 100
const MAX_PAGE = 1000

/** Parses the query of a page. Throws `invalid-admin-request` for a wrong limit or id. */
export function pageQuery(given: { readonly limit?: number; readonly after?: string }): PageQuery {
  const { limit = DEFAULT_PAGE, after } = given
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE) {
    throw new GatewayError(
      'invalid-admin-request',
      `limit: expected a whole number from 1 to ${MAX_PAGE}, got ${limit}.`,
      {
        param: 'limit',
      },
    )
  }
  if (after !== undefined && (typeof after !== 'string' || !isSafeId(after))) {
    throw new GatewayError(
      'invalid-admin-request',
      `after: expected the id of the last record of the page before, got ${JSON.stringify(String(after).slice(0, 100))}.`,
      {
        param: 'after',
      },
    )
  }
  return after === undefined ? { limit } : { limit, after }
}
