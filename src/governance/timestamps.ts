import * as z from 'zod/mini'

export const TIMESTAMP_FORMAT = 'a time with a time zone, such as 2027-01-31T00:00:00Z'

export function isTimestamp(value: unknown): boolean {
  return z.iso.datetime({ offset: true }).safeParse(value).success && !Number.isNaN(Date.parse(String(value)))
}
