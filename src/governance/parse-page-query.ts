import { expects, integerFrom, type OptionCheck, optionsOf } from '../core/check-options.ts'
import { isSafeId, type PageQuery } from './record-table.ts'
import { MAX_PAGE_SIZE, type PageOptions, invalidFieldError, DEFAULT_PAGE_SIZE } from './page-query.ts'

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
