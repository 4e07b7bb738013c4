import { hash32 } from './hash.ts'

/**
 * What is known of a lower-case word. `common` words are those whose misspellings are recognised; `real` ones are all words
 * and names that one slip of the finger makes of a common word. A stranger passes for common once in a hundred, for real
 * once in forty, which costs a hit; a word that the lexicon was built from is never a stranger.
 */
export type Lexicon = (word: string) => 'common' | 'real' | 'unknown'

/** Knows nothing: without a lexicon no slip of the finger is forgiven. */
export const noLexicon: Lexicon = () => 'unknown'

/** Bits that a common and a real word set. */
export const COMMON_PROBES = 7
export const REAL_PROBES = 5

/** Endings that make a word of a word, and what may have stood in their place. */
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

/** The words that a word may be a regular form of; long enough to be words themselves. */
export function stemsOf(word: string): readonly string[] {
  return ENDINGS.flatMap(([ending, stems]) =>
    ending.test(word) ? stems.map((stem) => word.replace(ending, stem)) : [],
  ).filter((stem) => stem.length >= 4)
}

/** The bits that stand for a word in a filter of so many bits. */
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

/** The English lexicon, about 45 KB that are loaded by the first call. */
export async function loadEnglish(): Promise<Lexicon> {
  const { COMMON_WORDS, REAL_WORDS } = await import('./english-words.ts')
  return readLexicon(COMMON_WORDS, REAL_WORDS)
}
