/** Minimum length of a word in which a typo is assumed. */
const MIN_LENGTH = 4
/** Minimum length of a word in which vowels are confused: `woman` and `women` are two words, `seperate` is a typo. */
const LONG = 7
const VOWELS = 'aeiouy'
/** A last letter that makes another form of the same word: `use` and `used`, `lend` and `lender`. */
const ENDINGS = 'sdryent'
const PLAIN_WORD = /^[a-z]+$/

/**
 * Returns true when one lower-case word becomes the other by one typo: two adjacent letters swapped, one letter added,
 * missing or wrong. The first letter always agrees. Both may be real words: the lexicon decides that.
 */
export function isOneTypo(left: string, right: string): boolean {
  const short = left.length <= right.length ? left : right
  const long = left.length <= right.length ? right : left
  if (short.length < MIN_LENGTH || long.length - short.length > 1 || short === long) return false
  const from = commonStart(short, long)
  // At most two letters differ, and all behind them agree: the cheapest check comes first.
  if (from === 0 || !long.endsWith(short.slice(from + 2))) return false
  if (!PLAIN_WORD.test(short) || !PLAIN_WORD.test(long)) return false
  return short.length === long.length ? isSwapOrWrongLetter(short, long, from) : isExtraLetter(short, long, from)
}

/**
 * Returns true for typos of the hand by which names do not differ: two letters swapped, a letter doubled or one of a
 * double missing, or any typo in a long word.
 */
export function isTypingError(left: string, right: string): boolean {
  if (left.length >= LONG && right.length >= LONG) return true
  if (left.length === right.length) return [...left].sort().join('') === [...right].sort().join('')
  const [short, long] = left.length < right.length ? [left, right] : [right, left]
  const from = commonStart(short, long)
  return long[from] === long[from - 1]
}

function commonStart(left: string, right: string): number {
  let index = 0
  while (index < left.length && left[index] === right[index]) index += 1
  return index
}

function isSwapOrWrongLetter(left: string, right: string, from: number): boolean {
  const swapped = left[from] === right[from + 1] && left[from + 1] === right[from]
  if (swapped && left.slice(from + 2) === right.slice(from + 2)) return true
  if (left.slice(from + 1) !== right.slice(from + 1)) return false
  const [one = '', other = ''] = [left[from], right[from]]
  if (from === left.length - 1 && ENDINGS.includes(one) && ENDINGS.includes(other)) return false
  return left.length >= LONG || !(VOWELS.includes(one) && VOWELS.includes(other))
}

function isExtraLetter(short: string, long: string, from: number): boolean {
  if (short.slice(from) !== long.slice(from + 1)) return false
  return from < short.length || !ENDINGS.includes(long[from] ?? '')
}
