import { GatewayError } from '../core/errors.ts'
import { isSafeId, type PageQuery } from './record-table.ts'

const DEFAULT_PAGE = 100
const GREATEST_PAGE = 1000

/** A page of a list as it was asked for. Throws `invalid-admin-request` for a limit or an id that is none. */
export function pageQuery(given: { readonly limit?: number; readonly after?: string }): PageQuery {
  const { limit = DEFAULT_PAGE, after } = given
  if (!Number.isInteger(limit) || limit < 1 || limit > GREATEST_PAGE) {
    throw new GatewayError('invalid-admin-request', `limit: a whole number from 1 to ${GREATEST_PAGE} was expected.`, {
      param: 'limit',
    })
  }
  if (after !== undefined && (typeof after !== 'string' || !isSafeId(after))) {
    throw new GatewayError(
      'invalid-admin-request',
      'after: the id of the last entry of the page before was expected.',
      {
        param: 'after',
      },
    )
  }
  return after === undefined ? { limit } : { limit, after }
}
