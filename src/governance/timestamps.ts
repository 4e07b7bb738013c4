import { isDate } from '../core/check-options.ts'

export const TIMESTAMP_FORMAT = 'a time with a time zone, such as 2027-01-31T00:00:00Z'

const TIME = /^T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/

export function isTimestamp(value: unknown): boolean {
  return typeof value === 'string' && isDate(value.slice(0, 10)) && TIME.test(value.slice(10))
}
