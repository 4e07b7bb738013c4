/** Calendar windows in UTC: minute, hour, day, week (from Monday), month. */
export type DurationCode = '1m' | '1h' | '1d' | '1w' | '1M'

export const DURATION_CODES: readonly DurationCode[] = ['1m', '1h', '1d', '1w', '1M']

/** One window: `start` is within it, `end` is the first moment after it. Milliseconds since 1970. */
export interface Period {
  readonly start: number
  readonly end: number
}

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
const WEEK = 7 * DAY
/** 1970-01-01 was a Thursday. Its week began three days earlier. */
const MONDAY_SHIFT = 3 * DAY

const periods: Record<DurationCode, (at: number) => Period> = {
  '1m': (at) => aligned(at, MINUTE, 0),
  '1h': (at) => aligned(at, HOUR, 0),
  '1d': (at) => aligned(at, DAY, 0),
  '1w': (at) => aligned(at, WEEK, MONDAY_SHIFT),
  '1M': month,
}

/** Returns the calendar window that contains a moment. */
export function periodOf(at: number, code: DurationCode): Period {
  return periods[code](at)
}

function aligned(at: number, length: number, shift: number): Period {
  const start = Math.floor((at + shift) / length) * length - shift
  return { start, end: start + length }
}

function month(at: number): Period {
  const date = new Date(at)
  const year = date.getUTCFullYear()
  const index = date.getUTCMonth()
  return { start: Date.UTC(year, index, 1), end: Date.UTC(year, index + 1, 1) }
}
