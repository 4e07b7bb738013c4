import { expects, integerFrom, type OptionCheck, optionsOf } from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import { isSafeId, type PageQuery } from './record-table.ts'

/** Selects a page of a list. */
export interface PageOptions {
  /** Maximum number of records, 1 to 1,000. @default 100 */
  readonly limit?: number
  /** The id of the last record of the previous page. @default the first page */
  readonly after?: string
}

const DEFAULT_PAGE_SIZE = 100

const MAX_PAGE_SIZE = 1000

const checkQuery = optionsOf(
  {
    limit: integerFrom(1, MAX_PAGE_SIZE),
    after: expects(
      'the id of the last record of the previous page',
      (value) => typeof value === 'string' && isSafeId(value),
    ),
  } satisfies Record<keyof PageOptions, OptionCheck>,
  [],
  'an object, such as { limit: 100 }',
  'field',
)

export function parsePageQuery(query: PageOptions): PageQuery {
  const problem = checkQuery(query, '')
  if (problem !== undefined) throw invalidFieldError(problem.path || 'query', problem.text)
  const { limit = DEFAULT_PAGE_SIZE, after } = query
  return after === undefined ? { limit } : { limit, after }
}

export function invalidFieldError(param: string, text: string): GatewayError {
  return new GatewayError('invalid-admin-request', `${param}: ${text}`, { param })
}

/** Accepts only digits, because `Number` would also accept an empty text, `1e2` and `0x10`. */
export function parseDigits(text: string): number {
  return /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN
}
