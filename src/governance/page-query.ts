import { expectedText, GatewayError, unknownOptionText } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { isSafeId, type PageQuery } from './stored-records.ts'

/** Selects a page of a list. */
export interface PageOptions {
  /** Maximum number of records, 1 to 1,000. @default 100 */
  readonly limit?: number
  /** The id of the last record of the previous page. @default the first page */
  readonly after?: string
}

const DEFAULT_PAGE_SIZE = 100

const MAX_PAGE_SIZE = 1000

export function parsePageQuery(query: PageOptions): PageQuery {
  checkPageQuery(query)
  const { limit = DEFAULT_PAGE_SIZE, after } = query
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE_SIZE) {
    throw invalidFieldError('limit', `expected an integer from 1 to ${MAX_PAGE_SIZE}, got ${limit}.`)
  }
  if (after !== undefined && (typeof after !== 'string' || !isSafeId(after))) {
    const shown = JSON.stringify(String(after).slice(0, 100))
    throw invalidFieldError('after', `expected the id of the last record of the previous page, got ${shown}.`)
  }
  return after === undefined ? { limit } : { limit, after }
}

function checkPageQuery(query: unknown): void {
  if (!isJsonObject(query)) {
    throw invalidFieldError('query', expectedText('an object, such as { limit: 100 }', query, 'value'))
  }
  const unknownName = Object.keys(query).find((name) => name !== 'limit' && name !== 'after')
  if (unknownName !== undefined) {
    throw invalidFieldError(unknownName, unknownOptionText(unknownName, ['limit', 'after'], 'field'))
  }
}

export function invalidFieldError(param: string, text: string): GatewayError {
  return new GatewayError('invalid-admin-request', `${param}: ${text}`, { param })
}

/** Accepts only digits, because `Number` would also accept an empty text, `1e2` and `0x10`. */
export function parseDigits(text: string): number {
  return /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN
}
