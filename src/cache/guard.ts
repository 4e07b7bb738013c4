import type { Canonical, Item } from './canonical.ts'
import { CASE_MATTERS, NEGATIONS, QUESTION_WORDS } from './english.ts'
import { isPlainWord } from './tokenize.ts'
import {
  differsAtEnd,
  isFunctionTypo,
  isKeyboardError,
  isOneTypo,
  isSwapInside,
  isTypingError,
  noLexicon,
  withoutPossessive,
  type Lexicon,
} from './typos.ts'

export type Difference =
  | 'number'
  | 'negation'
  | 'name'
  | 'quotation-or-code'
  | 'sign'
  | 'question-word'
  | 'order'
  | 'case'
  | 'word'

export interface GuardOptions {
  /** Distinguishes misspellings from other words. @default typos are not forgiven */
  readonly lexicon?: Lexicon
  /** Maximum number of typos that are forgiven. @default 1 */
  readonly typos?: number
}

/**
 * Returns the first difference that could change the answer, or undefined if two texts ask the same question.
 *
 * The guard does not rely on embeddings: every content word, number, sign, name and quotation of one text must occur in
 * the other, in the same order. Both texts are canonical, without insignificant differences. In addition, an article
 * may be missing, and a word may be misspelled if one spelling is a common word and the other is not a word.
 */
export function differenceOf(left: Canonical, right: Canonical, options: GuardOptions = {}): Difference | undefined {
  const lexicon = mayForgive(left, right) ? (options.lexicon ?? noLexicon) : noLexicon
  const walk = { left: left.items, right: right.items, lexicon, typos: options.typos ?? 1 }
  let [i, j] = [0, 0]
  while (i < left.items.length || j < right.items.length) {
    const [one, other] = [left.items[i], right.items[j]]
    const [skipOne, skipOther] = extraArticles(one, other)
    if (skipOne || skipOther) {
      i += skipOne ? 1 : 0
      j += skipOther ? 1 : 0
      continue
    }
    if (one === undefined || other === undefined) return kindOf(one ?? other, walk)
    const difference = compare(one, other, walk, left.items[i - 1])
    if (difference !== undefined) return difference
    i += 1
    j += 1
  }
  return undefined
}

/**
 * Returns true if two texts have the same numbers, names, quotations, code and negations in the same order. In a
 * different order, names often have different roles.
 */
export function hasSameFacts(left: Canonical, right: Canonical): boolean {
  return factsOf(left) === factsOf(right)
}

function factsOf({ items }: Canonical): string {
  const isFact = (item: Item): boolean =>
    item.kind === 'number' ||
    item.kind === 'exact' ||
    NEGATIONS.has(item.key) ||
    (item.kind === 'word' && !isPlainWord(item))
  return items
    .filter(isFact)
    .map((item) => item.key.toLowerCase())
    .join('\u0000')
}

interface Walk {
  readonly left: readonly Item[]
  readonly right: readonly Item[]
  readonly lexicon: Lexicon
  typos: number
}

/** Returns for each of the two texts whether it has an article that the other text lacks. */
function extraArticles(one: Item | undefined, other: Item | undefined): readonly [boolean, boolean] {
  const both = one?.article !== undefined && other?.article !== undefined
  if (both || one?.key === other?.key) return [false, false]
  if (one?.article !== undefined) return [true, false]
  return [false, other?.article !== undefined]
}

function compare(one: Item, other: Item, walk: Walk, before: Item | undefined): Difference | undefined {
  if (one.article !== undefined && one.article === other.article) return undefined
  if (one.kind === other.kind && one.key === other.key) {
    return caseMatters(one, other, before) ? 'case' : undefined
  }
  if (isLowerCaseOf(one, other) || isLowerCaseOf(other, one)) return undefined
  if (walk.typos > 0 && (hasMovedCapital(one, other) || hasMovedCapital(other, one))) {
    walk.typos -= 1
    return undefined
  }
  if (walk.typos > 0 && before?.kind !== 'number' && isMisspelled(one, other, walk)) {
    walk.typos -= 1
    return undefined
  }
  const kind = kindOf(one, walk)
  return kind === 'word' ? kindOf(other, walk) : kind
}

/** Returns true if case is significant, as for units (mb, MB) and for words such as us and US. */
function caseMatters(one: Item, other: Item, before: Item | undefined): boolean {
  if (one.kind !== 'word' || one.raw === other.raw) return false
  if (before?.kind === 'number' && one.key.length <= 4) return true
  return !one.opens && !other.opens && CASE_MATTERS.has(one.key) && isCapital(one) !== isCapital(other)
}

/** Returns true for `youtube` and YouTube. Two words with different capitals are different identifiers. */
function isLowerCaseOf(lower: Item, proper: Item): boolean {
  const isLower = lower.kind === 'word' && lower.raw === lower.key && proper.kind === 'exact'
  return isLower && /^\p{L}+$/u.test(proper.key) && proper.key.toLowerCase() === lower.key
}

/** Returns true for `uSer` and User: two letters are swapped together with their case. */
function hasMovedCapital(swapped: Item, proper: Item): boolean {
  const [first, second] = swapped.raw
  const isSwapped =
    swapped.kind === 'exact' && first !== undefined && second !== undefined && /^[a-z][A-Z][a-z]+$/.test(swapped.raw)
  return isSwapped && proper.kind === 'word' && proper.raw === second + first + swapped.raw.slice(2)
}

function isCapital(item: Item): boolean {
  return item.raw !== item.raw.toLowerCase()
}

/**
 * Returns true if typos are forgiven. One of the two texts must be English, because the typo may be in the only English
 * word of the other text.
 */
function mayForgive(left: Canonical, right: Canonical): boolean {
  if (left.language === 'none' || right.language === 'none') return false
  return left.language === 'english' || right.language === 'english'
}

/** Minimum length of a content word. Shorter unknown words are often names in lower case. */
const CONTEXT_LENGTH = 4

/** Minimum length of a misspelled word with a capital letter. Shorter words are often names. */
const MIN_TITLE_LENGTH = 6

/**
 * Returns true if one of two words is common and the other is a misspelling of it, not a word. In a long name, two
 * letters may also be swapped if the result cannot be a word or a name: `Kisrten` is Kirsten.
 */
function isMisspelled(one: Item, other: Item, walk: Walk): boolean {
  if (one.kind !== 'word' || other.kind !== 'word') return false
  const [left, right] = withoutPossessive(one.key, other.key)
  const classes = [classOf(left, walk.lexicon), classOf(right, walk.lexicon)]
  const isImpossible = classes.includes('impossible')
  const isTypo = classes.includes('common') && (isImpossible || classes.includes('unknown'))
  if (!isPlainWord(one) || !isPlainWord(other)) {
    if (!isTitle(one) || !isTitle(other) || Math.min(left.length, right.length) < MIN_TITLE_LENGTH) return false
    if (!isOneTypo(left, right)) return false
    if (isTypo && isKeyboardError(left, right)) return true
    return isImpossible && classes[0] !== classes[1] && (isTypo || isSwapInside(left, right))
  }
  if (!isTypo) return false
  if (isFunctionTypo(left, right)) return true
  if (!isOneTypo(left, right)) return false
  const isTypingMistake = isTypingError(left, right) || (left.length > CONTEXT_LENGTH && isKeyboardError(left, right))
  return isTypingMistake || isImpossible || hasContext(walk.left, one, [left, right])
}

/** Classifies a word and its British spelling: `despize` is despise, not a misspelling of despite. */
function classOf(word: string, lexicon: Lexicon): ReturnType<Lexicon> {
  const wordClass = lexicon(word)
  if (wordClass === 'common' || wordClass === 'real') return wordClass
  const british = word.replace(/(?<=[iy])z(?=(?:es?|ed|ing|ations?|ers?)$)/, 's')
  return british === word ? wordClass : lexicon(british)
}

function isTitle(item: Item): boolean {
  return /^\p{Lu}[\p{Ll}'’]+$/u.test(item.raw)
}

/**
 * Returns true if the text has enough other content words. Otherwise an unknown word may be a name in lower case (deno,
 * trino), especially if it is short or differs at its end.
 */
function hasContext(items: readonly Item[], word: Item, [left, right]: readonly [string, string]): boolean {
  const isShort = Math.min(left.length, right.length) <= CONTEXT_LENGTH
  const needed = isShort || differsAtEnd(left, right) ? 3 : 2
  const otherWords = items.filter((item) => item !== word && item.kind === 'word' && item.key.length >= CONTEXT_LENGTH)
  return otherWords.filter((item) => !QUESTION_WORDS.has(item.key)).length >= needed
}

function kindOf(item: Item | undefined, walk: Walk): Difference {
  if (item === undefined || haveSameItems(walk.left, walk.right)) return 'order'
  if (item.kind === 'number') return 'number'
  if (item.kind === 'exact') return 'quotation-or-code'
  if (item.kind !== 'word') return 'sign'
  if (NEGATIONS.has(item.key)) return 'negation'
  if (QUESTION_WORDS.has(item.key)) return 'question-word'
  return isPlainWord(item) ? 'word' : 'name'
}

function haveSameItems(left: readonly Item[], right: readonly Item[]): boolean {
  const bag = (items: readonly Item[]): string =>
    items
      .map((item) => item.key)
      .sort()
      .join('\u0000')
  return left.length === right.length && bag(left) === bag(right)
}
