import { GatewayError } from '../core/errors.ts'

/** Selects a page of a list. */
export interface PageOptions {
  /** Maximum number of records, 1 to 1,000. @default 100 */
  readonly limit?: number
  /** The id of the last record of the previous page. @default the first page */
  readonly after?: string
}

export const DEFAULT_PAGE_SIZE = 100

export const MAX_PAGE_SIZE = 1000

export function invalidFieldError(param: string, text: string): GatewayError {
  return new GatewayError('invalid-admin-request', `${param}: ${text}`, { param })
}

/** Accepts only digits, because `Number` would also accept an empty text, `1e2` and `0x10`. */
export function parseDigits(text: string): number {
  return /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN
}
