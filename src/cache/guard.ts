import type { Canonical, CanonicalToken } from './canonical.ts'
import { CASE_SENSITIVE_WORDS, NEGATIONS, QUESTION_WORDS } from './english.ts'
import { isPlainWord } from './tokenize.ts'
import {
  differsAtEnd,
  isFunctionWordTypo,
  isKeyboardError,
  isOneTypo,
  isSwapInside,
  isUnambiguousTypo,
  noLexicon,
  removePossessives,
  type Lexicon,
} from './typos.ts'

export type Difference =
  | 'number'
  | 'negation'
  | 'name'
  | 'quotation-or-code'
  | 'symbol'
  | 'question-word'
  | 'order'
  | 'case'
  | 'word'

interface TypoOptions {
  readonly lexicon: Lexicon
  readonly maxTypos: number
}

/** Returns the first difference that could change the answer. */
export function findDifference(left: Canonical, right: Canonical, options: TypoOptions): Difference | undefined {
  const isExact = left.language === 'none' || right.language === 'none'
  const state: ComparisonState = {
    left: left.items,
    right: right.items,
    lexicon: mayForgiveTypos(left, right) ? options.lexicon : noLexicon,
    isCaseSensitive: [left, right].every((form) => form.language !== 'english' && form.items.some(hasCapital)),
    isExact,
    remainingTypos: isExact ? 0 : options.maxTypos,
  }
  let [i, j] = [0, 0]
  while (i < left.items.length || j < right.items.length) {
    const [a, b] = [left.items[i], right.items[j]]
    const extraArticle = extraArticleOf(a, b)
    if (extraArticle !== undefined) {
      if (extraArticle === a) i += 1
      else j += 1
      continue
    }
    if (a === undefined || b === undefined) return kindOfDifference(a ?? b, state)
    const difference = compare(a, b, state, left.items[i - 1])
    if (difference !== undefined) return difference
    i += 1
    j += 1
  }
  return undefined
}

/** The order of the facts counts, because in another order, names may have other roles. */
export function hasSameFacts(left: Canonical, right: Canonical): boolean {
  return factsOf(left) === factsOf(right)
}

function factsOf({ items }: Canonical): string {
  const isFact = (item: CanonicalToken): boolean =>
    item.kind === 'number' ||
    item.kind === 'exact' ||
    NEGATIONS.has(item.key) ||
    (item.kind === 'word' && !isPlainWord(item))
  return items
    .filter(isFact)
    .map((item) => item.key.toLowerCase())
    .join('\u0000')
}

interface ComparisonState {
  readonly left: readonly CanonicalToken[]
  readonly right: readonly CanonicalToken[]
  readonly lexicon: Lexicon
  readonly isCaseSensitive: boolean
  readonly isExact: boolean
  remainingTypos: number
}

function extraArticleOf(a: CanonicalToken | undefined, b: CanonicalToken | undefined): CanonicalToken | undefined {
  const areBothArticles = a?.article !== undefined && b?.article !== undefined
  if (areBothArticles || a?.key === b?.key) return undefined
  return [a, b].find((item) => item?.article !== undefined)
}

function compare(
  a: CanonicalToken,
  b: CanonicalToken,
  state: ComparisonState,
  before: CanonicalToken | undefined,
): Difference | undefined {
  if (a.article !== undefined && a.article === b.article) return undefined
  if (a.kind === b.kind && a.key === b.key) {
    return isCaseSignificant(a, b, before, state) ? 'case' : undefined
  }
  if (!state.isExact && (isLowerCaseOf(a, b) || isLowerCaseOf(b, a))) return undefined
  const isTypo = (): boolean =>
    hasMovedCapital(a, b) || hasMovedCapital(b, a) || (before?.kind !== 'number' && isMisspelled(a, b, state))
  if (state.remainingTypos > 0 && isTypo()) {
    state.remainingTypos -= 1
    return undefined
  }
  const kind = kindOfDifference(a, state)
  return kind === 'word' ? kindOfDifference(b, state) : kind
}

/** After other symbols, case is significant, because the word may be an option (-v), a variable or a format. */
const PUNCTUATION = ',;:()¿¡'

/** Case is significant in units (mb, MB), letters (g, G), options (-v, -V) and abbreviations (Co, CO). */
function isCaseSignificant(
  a: CanonicalToken,
  b: CanonicalToken,
  before: CanonicalToken | undefined,
  { isCaseSensitive }: ComparisonState,
): boolean {
  if (a.kind !== 'word' || a.raw === b.raw) return false
  if (before?.kind === 'number' && a.key.length <= 4) return true
  if (before?.kind === 'symbol' && !PUNCTUATION.includes(before.raw)) return true
  if (a.startsSentence || b.startsSentence) return false
  if (isCaseSensitive || (a.key.length === 1 && a.key !== 'i')) return true
  if (hasCapital(a) && hasCapital(b)) return a.key.length <= 4
  return CASE_SENSITIVE_WORDS.has(a.key)
}

/** Matches YouTube, iPhone and macOS, but not the identifier getName. */
const PROPER_NAME = /^(?:\p{Ll}?\p{Lu}|mac)\p{L}+$/u

/** Accepts `youtube` for YouTube. Two words with different capitals are different identifiers. */
function isLowerCaseOf(lower: CanonicalToken, proper: CanonicalToken): boolean {
  const isLower = lower.kind === 'word' && lower.raw === lower.key && proper.kind === 'exact'
  return isLower && PROPER_NAME.test(proper.key) && proper.key.toLowerCase() === lower.key
}

function hasMovedCapital(swapped: CanonicalToken, proper: CanonicalToken): boolean {
  const [first, second] = swapped.raw
  const isSwapped =
    swapped.kind === 'exact' && first !== undefined && second !== undefined && /^[a-z][A-Z][a-z]+$/.test(swapped.raw)
  return isSwapped && proper.kind === 'word' && proper.raw === second + first + swapped.raw.slice(2)
}

function hasCapital(item: CanonicalToken): boolean {
  return item.raw !== item.raw.toLowerCase()
}

/** One English text suffices, because a typo can hide the words by which the other text is recognized as English. */
function mayForgiveTypos(left: Canonical, right: Canonical): boolean {
  return left.language === 'english' || right.language === 'english'
}

const MIN_CONTENT_WORD_LENGTH = 4

/** Shorter words with a capital letter are often names. */
const MIN_TITLE_CASE_LENGTH = 6

/** In a long name, swapped letters are a typo if the result cannot be a word or a name: `Kisrten`. */
function isMisspelled(a: CanonicalToken, b: CanonicalToken, state: ComparisonState): boolean {
  if (a.kind !== 'word' || b.kind !== 'word') return false
  const [left, right] = removePossessives(a.key, b.key)
  const classes = [classOf(left, state.lexicon), classOf(right, state.lexicon)]
  const isImpossible = classes.includes('impossible')
  const isTypo = classes.includes('common') && (isImpossible || classes.includes('unknown'))
  if (!isPlainWord(a) || !isPlainWord(b)) {
    if (!isTitleCase(a) || !isTitleCase(b) || Math.min(left.length, right.length) < MIN_TITLE_CASE_LENGTH) return false
    if (!isOneTypo(left, right)) return false
    if (isTypo && isKeyboardError(left, right)) return true
    return isImpossible && classes[0] !== classes[1] && (isTypo || isSwapInside(left, right))
  }
  if (!isTypo) return false
  if (isFunctionWordTypo(left, right)) return true
  if (!isOneTypo(left, right)) return false
  const isUnambiguous =
    isUnambiguousTypo(left, right) || (left.length > MIN_CONTENT_WORD_LENGTH && isKeyboardError(left, right))
  return isUnambiguous || isImpossible || hasContext(state.left, a, [left, right])
}

/** Also looks up the British spelling: `despize` is despise, not a misspelling of despite. */
function classOf(word: string, lexicon: Lexicon): ReturnType<Lexicon> {
  const wordClass = lexicon(word)
  if (wordClass === 'common' || wordClass === 'real') return wordClass
  const british = word.replace(/(?<=[iy])z(?=(?:es?|ed|ing|ations?|ers?)$)/, 's')
  return british === word ? wordClass : lexicon(british)
}

function isTitleCase(item: CanonicalToken): boolean {
  return /^\p{Lu}[\p{Ll}'’]+$/u.test(item.raw)
}

/** Without enough other content words, an unknown word may be a name in lower case (deno, trino). */
function hasContext(
  items: readonly CanonicalToken[],
  word: CanonicalToken,
  [left, right]: readonly [string, string],
): boolean {
  const isShort = Math.min(left.length, right.length) <= MIN_CONTENT_WORD_LENGTH
  const needed = isShort || differsAtEnd(left, right) ? 3 : 2
  const otherWords = items.filter(
    (item) => item !== word && item.kind === 'word' && item.key.length >= MIN_CONTENT_WORD_LENGTH,
  )
  return otherWords.filter((item) => !QUESTION_WORDS.has(item.key)).length >= needed
}

function kindOfDifference(item: CanonicalToken | undefined, state: ComparisonState): Difference {
  if (item === undefined || haveSameItems(state.left, state.right)) return 'order'
  if (item.kind === 'number') return 'number'
  if (item.kind === 'exact') return 'quotation-or-code'
  if (item.kind !== 'word') return 'symbol'
  if (NEGATIONS.has(item.key)) return 'negation'
  if (QUESTION_WORDS.has(item.key)) return 'question-word'
  return isPlainWord(item) ? 'word' : 'name'
}

function haveSameItems(left: readonly CanonicalToken[], right: readonly CanonicalToken[]): boolean {
  const sortedKeys = (items: readonly CanonicalToken[]): string =>
    items
      .map((item) => item.key)
      .sort()
      .join('\u0000')
  return left.length === right.length && sortedKeys(left) === sortedKeys(right)
}
