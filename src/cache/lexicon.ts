import { hash32 } from './hash.ts'

/**
 * Says whether a lower-case word is a real one. May wrongly say yes (about one in ten), which only costs a hit; never
 * wrongly no for a word it was built from.
 */
export type Lexicon = (word: string) => boolean

/** Knows nothing: without a lexicon no slip of the finger is forgiven. */
export const noLexicon: Lexicon = () => false

/** How many bits a word sets. */
const PROBES = 4

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
export function bitsOfWord(word: string, size: number): readonly number[] {
  const first = hash32(word, 0x5eed)
  const step = hash32(word, 0x0dd5) | 1
  return Array.from({ length: PROBES }, (_, probe) => (first + Math.imul(step, probe)) >>> 0).map((bit) => bit % size)
}

/** Reads a Bloom filter that bench/cache/build-lexicon.ts wrote. */
export function readLexicon(base64: string): Lexicon {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))
  const size = bytes.length * 8
  const holds = (word: string): boolean =>
    bitsOfWord(word, size).every((bit) => (((bytes[bit >>> 3] ?? 0) >>> (bit & 7)) & 1) === 1)
  return (word) => holds(word) || stemsOf(word).some(holds)
}

/** The common English words and all words that one slip of the finger makes of them. Loaded on the first call. */
export async function loadEnglish(): Promise<Lexicon> {
  const { ENGLISH_WORDS } = await import('./english-words.ts')
  return readLexicon(ENGLISH_WORDS)
}
