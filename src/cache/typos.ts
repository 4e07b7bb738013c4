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
 * missing or wrong. The first letter agrees unless it is swapped. Both may be real words: the lexicon decides that.
 */
export function isOneTypo(left: string, right: string): boolean {
  const short = left.length <= right.length ? left : right
  const long = left.length <= right.length ? right : left
  if (short.length < MIN_LENGTH || long.length - short.length > 1 || short === long) return false
  const from = commonStart(short, long)
  // At most two letters differ, and all behind them agree: the cheapest check comes first.
  if (!long.endsWith(short.slice(from + 2))) return false
  if (from === 0 && !isSwap(short, long, 0)) return false
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

/** Returns true when two letters are swapped at `at`, and all others agree. */
function isSwap(left: string, right: string, at: number): boolean {
  const swapped = left.length === right.length && left[at] === right[at + 1] && left[at + 1] === right[at]
  return swapped && left.slice(at + 2) === right.slice(at + 2)
}

/** Returns true when two letters behind the first are swapped. */
export function isSwapInside(left: string, right: string): boolean {
  const from = commonStart(left, right)
  return from > 0 && isSwap(left, right, from)
}

function isSwapOrWrongLetter(left: string, right: string, from: number): boolean {
  if (isSwap(left, right, from)) return true
  if (left.slice(from + 1) !== right.slice(from + 1)) return false
  const [one = '', other = ''] = [left[from], right[from]]
  if (from === left.length - 1 && ENDINGS.includes(one) && ENDINGS.includes(other)) return false
  return left.length >= LONG || !(VOWELS.includes(one) && VOWELS.includes(other))
}

function isExtraLetter(short: string, long: string, from: number): boolean {
  if (short.slice(from) !== long.slice(from + 1)) return false
  return from < short.length || !ENDINGS.includes(long[from] ?? '')
}

/**
 * Words of grammar. One of them misspelled is recognized without context and with any vowel, because a name in its place
 * would make no sentence. Pronouns are missing: `tell thom` is not `tell them`.
 */
const FUNCTION_WORDS: readonly string[] =
  `about above across after again against along also although among another around because been before behind being
  below between could does doing during every from have having into only should since than their then though through
  under until upon very want were what when where whether which while whose with within without would your`.split(/\s+/)
const IS_FUNCTION_WORD: ReadonlySet<string> = new Set(FUNCTION_WORDS)
const CONSONANTS = /^[^aeiouy]+$/

/** Returns true when one word is a function word and the other is a misspelling of it and of no other function word. */
export function isFunctionTypo(left: string, right: string): boolean {
  const isLeft = IS_FUNCTION_WORD.has(left)
  if (isLeft === IS_FUNCTION_WORD.has(right)) return false
  const [word, misspelled] = isLeft ? [left, right] : [right, left]
  if (!isOneEdit(word, misspelled) || !PLAIN_WORD.test(misspelled)) return false
  if (misspelled.length < MIN_LENGTH && !CONSONANTS.test(misspelled)) return false
  return FUNCTION_WORDS.every((other) => other === word || !isOneEdit(other, misspelled))
}

/** Returns true for two words that the guard may accept as one. */
export function mayBeTypo(left: string, right: string): boolean {
  const [one, other] = withoutPossessive(left, right)
  return isOneTypo(one, other) || isFunctionTypo(one, other)
}

/** Removes `'s` where both words have it: `professor's` is misspelled as `professor` is. */
export function withoutPossessive(left: string, right: string): readonly [string, string] {
  return left.endsWith("'s") && right.endsWith("'s") ? [left.slice(0, -2), right.slice(0, -2)] : [left, right]
}

/** Returns true when one word becomes the other by two swapped letters, or by one added, missing or wrong after the first. */
function isOneEdit(left: string, right: string): boolean {
  const [short, long] = left.length <= right.length ? [left, right] : [right, left]
  const from = commonStart(short, long)
  if (isSwap(short, long, from)) return true
  if (from === 0 || long.length - short.length > 1) return false
  return short.slice(short.length < long.length ? from : from + 1) === long.slice(from + 1)
}

/**
 * Returns true for a misspelling that no name has: two letters swapped, or a wrong letter beside the right one on the
 * keyboard. Names differ by vowels, doubled letters and endings (Philips, Carpentier).
 */
export function isKeyboardError(left: string, right: string): boolean {
  if (left.length !== right.length) return false
  const from = commonStart(left, right)
  const [one = '', other = ''] = [left.charAt(from), right.charAt(from)]
  if (from === left.length - 1 || (VOWELS.includes(one) && VOWELS.includes(other))) return false
  if (left.slice(from + 1) !== right.slice(from + 1)) return one === right.charAt(from + 1)
  return KEYBOARD.some(
    (row) => Math.abs(row.indexOf(one) - row.indexOf(other)) === 1 && row.includes(one) && row.includes(other),
  )
}

const KEYBOARD: readonly string[] = ['qwertyuiop', 'asdfghjkl', 'zxcvbnm']

/** Returns true when the words differ in the last letter alone, as names of products do from words: prisma, strapi. */
export function differsAtEnd(left: string, right: string): boolean {
  const length = Math.min(left.length, right.length)
  return left.slice(0, length - 1) === right.slice(0, length - 1)
}
