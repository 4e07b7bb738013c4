import type { Token } from './tokens.ts'

/**
 * Words of grammar in which two swapped letters are corrected before texts are compared. Pronouns that may be objects
 * are missing: `update ehr records` is not `update her records`.
 */
const GRAMMAR_WORDS =
  `the and was were did does how what when where which who why that this these those there their they you your are for can
  could should would will had have with about because from been than then also after before between during through while
  without some say said new tell please know want need like help explain show give make`.split(/\s+/)

/** Swapped letters that make another word, a name or an abbreviation, or that may stand for two words. */
const AMBIGUOUS: ReadonlySet<string> = new Set('hwo aws dose odes weer form eben bene sadi three siad asid'.split(' '))

const CORRECTED: ReadonlyMap<string, string> = new Map([
  ...GRAMMAR_WORDS.flatMap((word) =>
    swapsOf(word)
      .filter((swapped) => !AMBIGUOUS.has(swapped))
      .map((swapped): [string, string] => [swapped, word]),
  ),
  ['fo', 'of'],
  ['si', 'is'],
])

/** Words whose swap is ambiguous in small letters. A capital that moved along with its letter shows the swap. */
const CAPITAL_MOVED: ReadonlyMap<string, string> = new Map([
  ['oD', 'do'],
  ['fI', 'if'],
  ['nI', 'in'],
  ['hWo', 'who'],
  ['hWy', 'why'],
  ['rAe', 'are'],
])
const HAS_MOVED_CAPITAL = /^[a-z][A-Z][a-z]*$/

function swapsOf(word: string): readonly string[] {
  return Array.from(
    { length: word.length - 1 },
    (_, at) => word.slice(0, at) + word.charAt(at + 1) + word.charAt(at) + word.slice(at + 2),
  ).filter((swapped) => swapped !== word)
}

/** Returns the word of grammar that a token with two swapped letters means (`the` for `teh`), or the token. */
export function withGrammarWord(token: Token): Token {
  const word = grammarWordOf(token)
  return word === undefined ? token : { kind: 'word', raw: word, key: word, opens: token.opens }
}

function grammarWordOf(token: Token): string | undefined {
  if (token.kind === 'exact') {
    if (!token.opens || !HAS_MOVED_CAPITAL.test(token.raw)) return undefined
    return CAPITAL_MOVED.get(token.raw) ?? CORRECTED.get(token.raw.toLowerCase())
  }
  if (token.kind !== 'word') return undefined
  const isWritten = token.raw === token.key || (token.opens && token.raw.slice(1) === token.key.slice(1))
  return isWritten ? CORRECTED.get(token.key) : undefined
}
