import { hash32 } from './hash.ts'

/**
 * Classifies a lower-case word. Misspellings of `common` words are recognized; `real` words are all words and names one
 * typo away from a common word. An unknown word is taken for common or for real about once in a hundred cases,
 * which costs a hit. A word that the lexicon was built from is never unknown. An `impossible` word is unknown and has
 * three letters in a row that occur in almost no word or name: it is a misspelling, not a name.
 */
export type Lexicon = (word: string) => 'common' | 'real' | 'unknown' | 'impossible'

/** Contains no words. Without a lexicon no typo is corrected. */
export const noLexicon: Lexicon = () => 'unknown'

/** Bits that a common and a real word set. */
export const COMMON_PROBES = 10
export const REAL_PROBES = 9

/** Endings of regular forms, and what they may replace. */
const ENDINGS: readonly (readonly [RegExp, readonly string[]])[] = [
  [/ies$/, ['y', 'ie']],
  [/ied$/, ['y']],
  [/ier$/, ['y']],
  [/ily$/, ['y']],
  [/s$/, ['']],
  [/es$/, ['']],
  [/(?<=[^aeiou])(?:ed|er|ers|ing|ings)$/, ['', 'e']],
  [/(?:ly|ness)$/, ['']],
]

/** Returns the words that a word may be a regular form of, of at least four letters. */
export function stemsOf(word: string): readonly string[] {
  return ENDINGS.flatMap(([ending, stems]) =>
    ending.test(word) ? stems.map((stem) => word.replace(ending, stem)) : [],
  ).filter((stem) => stem.length >= 4)
}

/** Returns the bits of a word in a filter of `size` bits. */
export function bitsOfWord(word: string, size: number, probes: number): readonly number[] {
  const first = hash32(word, 0x5eed)
  const step = hash32(word, 0x0dd5) | 1
  return Array.from({ length: probes }, (_, probe) => ((first + Math.imul(step, probe)) >>> 0) % size)
}

/** Returns a number under 19,683 for each three letters of a word of a to z; a word begins and ends with a blank. */
export function trigramsOf(word: string): readonly number[] {
  const letters = [0, ...Array.from(word, (letter) => letter.charCodeAt(0) - 0x60), 0]
  return letters.slice(2).map((last, at) => (letters[at] ?? 0) * 729 + (letters[at + 1] ?? 0) * 27 + last)
}

/** Reads the filters that bench/cache/build-lexicon.ts wrote. */
export function readLexicon(commonWords: string, realWords: string, trigrams: string): Lexicon {
  const isCommon = readFilter(commonWords, COMMON_PROBES)
  const isReal = readFilter(realWords, REAL_PROBES)
  const isTrigram = readBits(trigrams).has
  return (word) => {
    if (isCommon(word)) return 'common'
    if (isReal(word)) return 'real'
    return /^[a-z]+$/.test(word) && !trigramsOf(word).every(isTrigram) ? 'impossible' : 'unknown'
  }
}

function readFilter(base64: string, probes: number): (word: string) => boolean {
  const { size, has } = readBits(base64)
  const holds = (word: string): boolean => bitsOfWord(word, size, probes).every(has)
  return (word) => holds(word) || stemsOf(word).some(holds)
}

function readBits(base64: string): { readonly size: number; readonly has: (bit: number) => boolean } {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))
  return { size: bytes.length * 8, has: (bit) => (((bytes[bit >>> 3] ?? 0) >>> (bit & 7)) & 1) === 1 }
}

/** Loads the English lexicon, about 130 KB. */
export async function loadEnglish(): Promise<Lexicon> {
  const { COMMON_WORDS, REAL_WORDS, TRIGRAMS } = await import('./english-words.ts')
  return readLexicon(COMMON_WORDS, REAL_WORDS, TRIGRAMS)
}

/** Returns a function that loads the lexicon on its first call, and returns it without a promise after that. */
export function lazyLexicon(load: () => Promise<Lexicon> = loadEnglish): () => Lexicon | Promise<Lexicon> {
  let loaded: Lexicon | undefined
  let loading: Promise<Lexicon> | undefined
  const start = async (): Promise<Lexicon> => {
    try {
      return (loaded = await load())
    } catch {
      loading = undefined
      return noLexicon
    }
  }
  return () => loaded ?? (loading ??= start())
}
