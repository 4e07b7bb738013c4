import { lazy, type MaybePromise } from '../../core/async.ts'
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

/** Shorter words are often one letter away from a name or a new word. */
const MIN_LENGTHS = { swap: 5, doubled: 6, changed: 7, anyLetter: 8 } as const
/** For very frequent words, which are misspelled far more often than a name resembles them. */
const MIN_FREQUENT_LENGTHS = { swap: 4, doubled: 4, changed: 5, anyLetter: 7 } as const
const FREQUENT = words(
  `able accept account action active actually address adult advice afternoon agree airport allow almost alone amount animal
  answer apartment apply area asked author available average avoid baby back bank basic beach become bedroom begin believe
  benefit best better bird birthday blood board body book born bottle brain bread break breakfast bring brother brown build
  building business button buy called camera cancel cancer cannot capital card care carry cause center century certain
  chance change charge cheap check chicken child children choose church city class clean clear climate close clothes coffee
  cold color come common company compare complete computer connect contact continue control cook cool copy correct cost
  country couple course cover create credit current customer daily dance danger data daughter death decide deep degree
  delete deliver dentist depend design develop device difference different difficult dinner doctor document dollar door
  down download dream dress drink drive driver during each early earth east easily easy eat education effect egg eight
  electric email empty end energy engine english enough enter equal error europe even event every exam example exercise
  expensive explain fact fail fall family famous farm fast father favorite feature feed feel file fill film final find
  fine finger finish fire first fish five flight floor flower follow food foot force forget form found four free fresh
  friend from front fruit full future game garden general german girl give glass goal gold good government grass great
  green group grow guest guide guitar hair half hand happen happy hard have head health healthy heart heat heavy height
  hello help high history hold holiday home hospital hotel hour house human hundred husband idea image important improve
  include increase industry information inside install interest internet invent invite island issue item jacket join juice
  just keep kill kind king kitchen know knowledge language large last late later laugh lawyer learn leave left lesson
  letter level library life light like limit line list listen little live local long look lose love lunch machine main make
  manage manager many market marry match material matter measure meat medicine meet meeting member memory method middle
  milk million mind minute mistake modern moment money month moon more morning most mother mountain mouth move movie much
  muscle music name natural near need never newspaper next night noise normal north nose number nurse ocean offer office
  often once only open order orange organize other outside oven own page pain paint pair paper parent park part party
  password past payment people percent perfect person phone photo physical piano picture piece place plan planet plant
  plastic play player please pocket point police popular position possible potato power practice prepare present president
  price print private probably problem process produce product program project protect provide public purpose put quality
  question quick quickly rain reach read ready real reason receive recent recipe record reduce refund region remember
  remove rent repair replace report require reset rest restaurant result return rice right river road room rule safe salad
  salary sale salt same sauce save school science screen search season seat second secret secure sell send sentence service
  settings several shape share ship shirt shoe shop short should show shower sick side sign similar simple since single
  sister size skill skin sleep slow small smell smile smoke snow social soft software some someone song soon sound soup
  south space speak special speed spend sport spring stage stand start state station stay step still stomach stone stop
  store story street strong student study style subject sugar summer support sure surface swim system table take talk tall
  taste teach teacher team temperature test thank thing think third thousand ticket time tired title together tomato tooth
  total touch tour tower town track trade traffic train travel treat tree trip trouble true trust turn type under
  understand university until update upload usual vacation value vegetable very video view village visit voice wait wake
  walk wall want warm wash watch water weather website week weight welcome well west what wheel when where which white whole
  wide wife wild will window wine winter wish woman wonder wood word work worker world worry write wrong year yellow young`,
)
const ROMAN_NUMERAL = /^[ivxlcdm]+$/

/** Returns true if the misspelling is a common typing error inside a word that is long enough to be recognized. */
export function isSafeTypo(word: string, typo: string): boolean {
  if (!isOneTypo(word, typo) || ROMAN_NUMERAL.test(word) || ROMAN_NUMERAL.test(typo)) return false
  const from = commonPrefixLength(word, typo)
  const min = FREQUENT.has(word) ? MIN_FREQUENT_LENGTHS : MIN_LENGTHS
  if (isSwap(word, typo, from)) return word.length >= min.swap
  const [short, long] = byLength(word, typo)
  // Product names and words of other languages often change the end of a word: prisma, systemd, flickr.
  if (from === 0 || from >= short.length - 1) return false
  if (short.length !== long.length) {
    return word.length >= (long[from] === long[from - 1] ? min.doubled : min.changed)
  }
  return word.length >= (isNeighborKey(word.charAt(from), typo.charAt(from)) ? min.changed : min.anyLetter)
}

/** Names that the lexicon contains as common words. An unknown word near one may be another name. */
const BRANDS = words(
  `google facebook twitter youtube netflix instagram microsoft android iphone amazon paypal spotify whatsapp linkedin reddit
  wikipedia samsung toyota honda tesla nvidia intel oracle adobe yahoo ebay uber airbnb disney starbucks walmart`,
)
/** New words that are spelled like a misspelling on purpose. */
const SLANG = words(
  `hodl hodls hodled hodling hodler hodlers teh pwn pwned smol doggo doggos pupper birb snek thicc thicco boi bois kool phat
  luv grrl gurl noob newb haxor warez wierdo rekt stonk stonks cheezburger hooman sowwy luser filk zine blox kewl`,
)
const LENGTHENED = /([aeiouy])\1\1/

/** Returns true for a spelling that is chosen on purpose, such as a brand, slang or a lengthened vowel (`sooo`). */
export function isDeliberate(word: string, typo: string): boolean {
  return BRANDS.has(word) || SLANG.has(typo) || LENGTHENED.test(typo)
}

function isNeighborKey(left: string, right: string): boolean {
  return KEYBOARD_ROWS.some((row) => row.includes(left + right) || row.includes(right + left))
}

const LETTERS = 'abcdefghijklmnopqrstuvwxyz'

/**
 * Returns true if no other common word is as likely to be meant: `contnent` may be continent or content. A swap and a
 * doubled letter are the most frequent errors, and a missing letter the rarest.
 */
export function isUniqueCorrection(word: string, typo: string, lexicon: Lexicon): boolean {
  const isOther = (candidate: string): boolean =>
    candidate !== word && lexicon(candidate) === 'common' && lexicon.hasUsualLetters?.(candidate) !== false
  for (let index = 0; index <= typo.length; index += 1) {
    const [head, letter, rest] = [typo.slice(0, index), typo.charAt(index), typo.slice(index + 1)]
    const next = rest.charAt(0)
    if (next !== '' && letter !== next && isOther(head + next + letter + rest.slice(1))) return false
    if (letter !== '' && (word.length !== typo.length || letter === next) && isOther(head + rest)) return false
    for (const other of word.length < typo.length ? '' : LETTERS) {
      if (word.length > typo.length && isOther(head + other + letter + rest)) return false
      if (letter !== '' && isNeighborKey(letter, other) && isOther(head + other + rest)) return false
    }
  }
  return true
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
export interface Lexicon {
  (word: string): 'common' | 'real' | 'unknown' | 'impossible'
  /** Returns false if three letters of the word almost never occur together. @default true */
  readonly hasUsualLetters?: ((word: string) => boolean) | undefined
}

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
  const hasUsualLetters = (word: string): boolean => trigramsOf(word).every(isKnownTrigram)
  const classOf: Lexicon = (word) => {
    if (isCommon(word)) return 'common'
    if (isReal(word)) return 'real'
    return PLAIN_WORD.test(word) && !hasUsualLetters(word) ? 'impossible' : 'unknown'
  }
  return Object.assign(classOf, { hasUsualLetters })
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
