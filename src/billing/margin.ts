import { numberFrom, type OptionCheck } from '../core/errors.ts'

/** A larger factor is a mistake of unit, such as 50 for 50%. */
export const MAX_MARGIN = 10

export const checkMargin: OptionCheck = numberFrom(
  0,
  MAX_MARGIN,
  `a number from 0 to ${MAX_MARGIN}, or a function that returns one`,
  (percent) => (percent < 100 ? percent + 100 : percent) / 100,
)
