/**
 * Whether all cases run: `FULL_TESTS=1`, as in `.ci/run`. Without it, `npm test` runs a part of the generated cases, of
 * the large matrices and of the load.
 */
export const IS_FULL: boolean = process.env['FULL_TESTS'] === '1'

/** Returns `full` with `FULL_TESTS`, otherwise a tenth of it, but at least five if there are as many. */
export function cases(full: number): number {
  return IS_FULL ? full : Math.max(Math.min(full, 5), Math.ceil(full / 10))
}

/** Returns all rows with `FULL_TESTS`, otherwise the first and each nth after it. */
export function everyNth<Row>(nth: number, rows: readonly Row[]): readonly Row[] {
  return IS_FULL ? rows : rows.filter((_, index) => index % nth === 0)
}
