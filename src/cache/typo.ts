/** The shortest word in which a slip of the finger is believed. */
const SHORTEST = 4
/** Vowels are confused with one another only in words this long: `woman` and `women` are two words, `seperate` is none. */
const LONG = 7
const VOWELS = 'aeiouy'
/** A last letter that makes another form of the same word: `use` and `used`, `lend` and `lender`. */
const ENDINGS = 'sdryent'
const PLAIN_WORD = /^[a-z]+$/

/**
 * True when one slip of the finger leads from one lower-case word to the other: two neighbouring letters swapped, one
 * letter too many, one missing, or one wrong. The first letter always agrees. Says nothing about which of the two is a
 * word: two real words can be one slip apart.
 */
export function isOneSlip(left: string, right: string): boolean {
  const [short, long] = left.length <= right.length ? [left, right] : [right, left]
  if (short.length < SHORTEST || long.length - short.length > 1 || short[0] !== long[0] || short === long) return false
  if (!PLAIN_WORD.test(short) || !PLAIN_WORD.test(long)) return false
  const from = commonStart(short, long)
  return short.length === long.length ? isSwapOrWrongLetter(short, long, from) : isExtraLetter(short, long, from)
}

/**
 * True for a slip that hands make and names do not: two letters swapped, a letter doubled or one of a double missing,
 * or any one slip in a long word.
 */
export function isTypingSlip(left: string, right: string): boolean {
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
