import { lazy, type MaybePromise } from '../core/async.ts'
import { words } from './english.ts'

const MIN_LENGTH = 4
/** In a shorter word, a wrong vowel is not a typo: `woman` and `women` are two words. */
const LONG_WORD_LENGTH = 7
const VOWELS = 'aeiouy'
const CONSONANTS = /^[^aeiouy]+$/
/** Final letters that often distinguish two words: `paint` and `paints`, `invite` and `invited`. */
const ENDINGS = 'sdryent'
const PLAIN_WORD = /^[a-z]+$/
const KEYBOARD_ROWS: readonly string[] = ['qwertyuiop', 'asdfghjkl', 'zxcvbnm']

/** Excludes personal pronouns, because a name can resemble one: `tell thom` is not `tell them`. */
const FUNCTION_WORDS = words(
  `about above across after again against along also although among another around because been before behind being
  below between could does doing during every from have having into only should since than their then though through
  under until upon very want were what when where whether which while whose with within without would your`,
)

/** Preselects pairs for the guard, which decides whether a difference is a typo. */
export function mayBeTypo(left: string, right: string): boolean {
  const [leftWord, rightWord] = removePossessives(left, right)
  return isOneTypo(leftWord, rightWord) || isFunctionWordTypo(leftWord, rightWord)
}

export function removePossessives(left: string, right: string): readonly [string, string] {
  return left.endsWith("'s") && right.endsWith("'s") ? [left.slice(0, -2), right.slice(0, -2)] : [left, right]
}

/** A swap, or one letter added, missing or wrong. Excludes changes that often lead to another word. */
export function isOneTypo(left: string, right: string): boolean {
  const short = left.length <= right.length ? left : right
  const long = short === left ? right : left
  if (short.length < MIN_LENGTH || long.length - short.length > 1 || short === long) return false
  const from = commonPrefixLength(short, long)
  // Cheapest check first: all letters after the typo must be equal.
  if (!long.endsWith(short.slice(from + 2))) return false
  if (from === 0 && !isSwap(short, long, 0)) return false
  if (!PLAIN_WORD.test(short) || !PLAIN_WORD.test(long)) return false
  return short.length === long.length ? isSwapOrWrongLetter(short, long, from) : isExtraLetter(short, long, from)
}

function isSwapOrWrongLetter(left: string, right: string, from: number): boolean {
  if (isSwap(left, right, from)) return true
  if (left.slice(from + 1) !== right.slice(from + 1)) return false
  const [leftLetter = '', rightLetter = ''] = [left[from], right[from]]
  if (from === left.length - 1 && ENDINGS.includes(leftLetter) && ENDINGS.includes(rightLetter)) return false
  return left.length >= LONG_WORD_LENGTH || !(VOWELS.includes(leftLetter) && VOWELS.includes(rightLetter))
}

function isExtraLetter(short: string, long: string, from: number): boolean {
  if (short.slice(from) !== long.slice(from + 1)) return false
  return from < short.length || !ENDINGS.includes(long[from] ?? '')
}

export function isFunctionWordTypo(left: string, right: string): boolean {
  const isLeftFunctionWord = FUNCTION_WORDS.has(left)
  if (isLeftFunctionWord === FUNCTION_WORDS.has(right)) return false
  const [word, misspelled] = isLeftFunctionWord ? [left, right] : [right, left]
  if (!isOneEdit(word, misspelled) || !PLAIN_WORD.test(misspelled)) return false
  if (misspelled.length < MIN_LENGTH && !CONSONANTS.test(misspelled)) return false
  return [...FUNCTION_WORDS].every((other) => other === word || !isOneEdit(other, misspelled))
}

/** Like `isOneTypo`, but for words of any length, with any vowel and any ending. */
function isOneEdit(left: string, right: string): boolean {
  const [short, long] = byLength(left, right)
  const from = commonPrefixLength(short, long)
  if (isSwap(short, long, from)) return true
  if (from === 0 || long.length - short.length > 1) return false
  return short.slice(short.length < long.length ? from : from + 1) === long.slice(from + 1)
}

/** A swap, a letter doubled or not doubled, or any typo in a long word rarely turns one word into another. */
export function isUnambiguousTypo(left: string, right: string): boolean {
  if (left.length >= LONG_WORD_LENGTH && right.length >= LONG_WORD_LENGTH) return true
  if (left.length === right.length) return [...left].sort().join('') === [...right].sort().join('')
  const [short, long] = byLength(left, right)
  const from = commonPrefixLength(short, long)
  return long[from] === long[from - 1]
}

/** Excludes typical differences between names: vowels, doubled letters and endings (Philips, Carpentier). */
export function isKeyboardError(left: string, right: string): boolean {
  if (left.length !== right.length) return false
  const from = commonPrefixLength(left, right)
  const [leftLetter = '', rightLetter = ''] = [left.charAt(from), right.charAt(from)]
  if (from === left.length - 1 || (VOWELS.includes(leftLetter) && VOWELS.includes(rightLetter))) return false
  if (left.slice(from + 1) !== right.slice(from + 1)) return leftLetter === right.charAt(from + 1)
  return KEYBOARD_ROWS.some((row) => row.includes(leftLetter + rightLetter) || row.includes(rightLetter + leftLetter))
}

export function isSwapInside(left: string, right: string): boolean {
  const from = commonPrefixLength(left, right)
  return from > 0 && isSwap(left, right, from)
}

/** Product names often change the end of a word: prisma, strapi. */
export function differsAtEnd(left: string, right: string): boolean {
  const length = Math.min(left.length, right.length)
  return left.slice(0, length - 1) === right.slice(0, length - 1)
}

function isSwap(left: string, right: string, index: number): boolean {
  const swapped = left.length === right.length && left[index] === right[index + 1] && left[index + 1] === right[index]
  return swapped && left.slice(index + 2) === right.slice(index + 2)
}

function byLength(left: string, right: string): readonly [string, string] {
  return left.length <= right.length ? [left, right] : [right, left]
}

function commonPrefixLength(left: string, right: string): number {
  let index = 0
  while (index < left.length && left[index] === right[index]) index += 1
  return index
}

/**
 * `real`: another word or name, one typo away from a common word. `impossible`: an unknown word with three letters that
 * almost never occur together. About 1% of unknown words are classified as common or real.
 */
export type Lexicon = (word: string) => 'common' | 'real' | 'unknown' | 'impossible'

export const noLexicon: Lexicon = () => 'unknown'

/** Number of bits that are set for each word in a Bloom filter. */
export const COMMON_PROBES = 10
export const REAL_PROBES = 9

const FORMS: readonly (readonly [RegExp, readonly string[]])[] = [
  [/ies$/, ['y', 'ie']],
  [/ied$/, ['y']],
  [/ier$/, ['y']],
  [/ily$/, ['y']],
  [/s$/, ['']],
  [/es$/, ['']],
  [/(?<=[^aeiou])(?:ed|er|ers|ing|ings)$/, ['', 'e']],
  [/(?:ly|ness)$/, ['']],
]

export function stemsOf(word: string): readonly string[] {
  return FORMS.flatMap(([ending, stems]) =>
    ending.test(word) ? stems.map((stem) => word.replace(ending, stem)) : [],
  ).filter((stem) => stem.length >= 4)
}

/** FNV-1a over UTF-16 code units, with a final mix. */
export function hash32(text: string, seed: number): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  }
  return mix(hash)
}

/** The finalizer of MurmurHash3. */
export function mix(value: number): number {
  let hash = value
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}

export function bitsOfWord(word: string, size: number, probes: number): readonly number[] {
  const first = hash32(word, 0x5eed)
  const step = hash32(word, 0x0dd5) | 1
  return Array.from({ length: probes }, (_, probe) => ((first + Math.imul(step, probe)) >>> 0) % size)
}

export function trigramsOf(word: string): readonly number[] {
  const letters = [0, ...Array.from(word, (letter) => letter.charCodeAt(0) - 0x60), 0]
  return letters.slice(2).map((last, index) => (letters[index] ?? 0) * 729 + (letters[index + 1] ?? 0) * 27 + last)
}

/** Filters in base64, written by bench/cache/build-lexicon.ts. */
export interface LexiconData {
  readonly commonWords: string
  readonly realWords: string
  readonly trigrams: string
}

export function readLexicon({ commonWords, realWords, trigrams }: LexiconData): Lexicon {
  const isCommon = readFilter(commonWords, COMMON_PROBES)
  const isReal = readFilter(realWords, REAL_PROBES)
  const isKnownTrigram = readBits(trigrams).has
  return (word) => {
    if (isCommon(word)) return 'common'
    if (isReal(word)) return 'real'
    return PLAIN_WORD.test(word) && !trigramsOf(word).every(isKnownTrigram) ? 'impossible' : 'unknown'
  }
}

function readFilter(base64: string, probes: number): (word: string) => boolean {
  const { size, has } = readBits(base64)
  const contains = (word: string): boolean => bitsOfWord(word, size, probes).every(has)
  return (word) => contains(word) || stemsOf(word).some(contains)
}

function readBits(base64: string): { readonly size: number; readonly has: (bit: number) => boolean } {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))
  return { size: bytes.length * 8, has: (bit) => (((bytes[bit >>> 3] ?? 0) >>> (bit & 7)) & 1) === 1 }
}

export async function loadEnglishLexicon(): Promise<Lexicon> {
  const { default: filters } = await import('./english-words.json', { with: { type: 'json' } })
  return readLexicon(filters)
}

let loadedLexicon: Lexicon | undefined
const loadOnce = lazy(async () => (loadedLexicon = await loadEnglishLexicon()))

export function englishLexicon(): MaybePromise<Lexicon> {
  return loadedLexicon ?? loadOnce().catch(() => noLexicon)
}
