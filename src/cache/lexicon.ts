import { hash32 } from './hash.ts'

/**
 * Classifies a lower-case word. Misspellings of `common` words are recognized; `real` words are all words and names one
 * typo away from a common word. An unknown word is taken for common once in a hundred cases and for real once in forty,
 * which costs a hit. A word that the lexicon was built from is never unknown.
 */
export type Lexicon = (word: string) => 'common' | 'real' | 'unknown'

/** Knows no word. Without a lexicon no typo is forgiven. */
export const noLexicon: Lexicon = () => 'unknown'

/** Bits that a common and a real word set. */
export const COMMON_PROBES = 7
export const REAL_PROBES = 5

/** Endings of regular forms, and what they may replace. */
const ENDINGS: readonly (readonly [RegExp, readonly string[]])[] = [
  [/ies$/, ['y', 'ie']],
  [/ied$/, ['y']],
  [/ier$/, ['y']],
  [/ily$/, ['y']],
  [/s$/, ['']],
  [/es$/, ['']],
  [/(?:ed|er|ing|able)$/, ['', 'e']],
  [/(?:ers|ings)$/, ['', 'e']],
  [/(?:ly|ness|ment|ments|less|ful)$/, ['']],
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

/** Reads the Bloom filters that bench/cache/build-lexicon.ts wrote. */
export function readLexicon(commonWords: string, realWords: string): Lexicon {
  const isCommon = readFilter(commonWords, COMMON_PROBES)
  const isReal = readFilter(realWords, REAL_PROBES)
  return (word) => {
    if (isCommon(word)) return 'common'
    return isReal(word) ? 'real' : 'unknown'
  }
}

function readFilter(base64: string, probes: number): (word: string) => boolean {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))
  const size = bytes.length * 8
  const holds = (word: string): boolean =>
    bitsOfWord(word, size, probes).every((bit) => (((bytes[bit >>> 3] ?? 0) >>> (bit & 7)) & 1) === 1)
  return (word) => holds(word) || stemsOf(word).some(holds)
}

/** Loads the English lexicon, about 45 KB. */
export async function loadEnglish(): Promise<Lexicon> {
  const { COMMON_WORDS, REAL_WORDS } = await import('./english-words.ts')
  return readLexicon(COMMON_WORDS, REAL_WORDS)
}

/** Returns a function that loads the lexicon at its first call, and returns it without a promise once it is loaded. */
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
