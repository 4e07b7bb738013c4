import { STARTERS, type Canonical } from './canonical.ts'
import { isCoined } from './coined-words.ts'
import { NEGATIONS, QUESTION_WORDS, words } from './english.ts'
import { isPlainWord, type Token } from './tokenize.ts'
import {
  isDeliberate,
  isFunctionWordTypo,
  isSafeTypo,
  isUniqueCorrection,
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

/** Returns the first difference that could change the response. */
export function findDifference(left: Canonical, right: Canonical, options: TypoOptions): Difference | undefined {
  const isExact = left.language === 'none' || right.language === 'none'
  const mayHaveTypos = left.mayHaveTypos && right.mayHaveTypos
  const state: ComparisonState = {
    left: left.items,
    right: right.items,
    lexicon: Object.assign((word: string) => classOf(word, options.lexicon), {
      hasUsualLetters: options.lexicon.hasUsualLetters,
    }),
    typos: [],
    mayHaveTypos,
    maxTypos: mayHaveTypos ? options.maxTypos : 0,
  }
  const length = Math.max(left.items.length, right.items.length)
  for (let index = 0; index < length; index += 1) {
    const [a, b] = [left.items[index], right.items[index]]
    if (a === undefined || b === undefined) return kindOfDifference(a ?? b, state)
    const difference = compare(a, b, state, index)
    if (difference !== undefined) return difference
  }
  if (isExact && left.text !== right.text) return 'symbol'
  // A text with other unknown words may be in another language, or about a subject whose names the lexicon lacks.
  return state.typos.length > 0 && !areWordsKnown(state) ? 'word' : undefined
}

/** The order of the facts counts, because in another order, names may have other roles. */
export function hasSameFacts(left: Canonical, right: Canonical): boolean {
  return factsOf(left) === factsOf(right)
}

function factsOf({ items }: Canonical): string {
  const isFact = (item: Token): boolean =>
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
  readonly left: readonly Token[]
  readonly right: readonly Token[]
  readonly lexicon: Lexicon
  readonly maxTypos: number
  /** False if the spelling of a word may be the subject. */
  readonly mayHaveTypos: boolean
  /** The misspelled words. */
  readonly typos: string[]
}

function compare(a: Token, b: Token, state: ComparisonState, index: number): Difference | undefined {
  if (a.kind === b.kind && a.key === b.key) {
    if (index > 0 && a.isSpaced !== b.isSpaced && (a.kind !== 'word' || isCapital(a))) return 'symbol'
    if (a.raw === b.raw || hasSameCase(a, b, state, index)) return undefined
    return state.mayHaveTypos && straighten(a.raw) === straighten(b.raw) ? undefined : 'case'
  }
  if (state.typos.length < state.maxTypos && state.left[index - 1]?.kind !== 'number') {
    const typo = typoBetween(a, b, state, index)
    if (typo !== undefined) {
      state.typos.push(typo)
      return undefined
    }
  }
  const kind = kindOfDifference(a, state)
  return kind === 'word' ? kindOfDifference(b, state) : kind
}

/** Clients type the apostrophe of `the dog's` and `can't` in two ways. In names such as O'Brien, it may be the subject. */
function straighten(raw: string): string {
  return raw.replace(/’(?=(?:s|t|re|ve|ll|m|d)$)/, "'")
}

/** `4 K` is a temperature, and `4K` a screen. */
function isCapital({ raw }: Token): boolean {
  return /^\p{Lu}$/u.test(raw)
}

/** At the beginning, these words may also be names: `Will Smith`. */
const NAMES = words('will may')
/** Words before or after the pronoun `I`. Elsewhere, it may be a letter, a number or a unit. */
const BEFORE_I = words(
  `do can could should would will may might must did am was were have had if when that what how where why as because
  and before after while until`,
)

/** Case is significant, except at the beginning of a question and in the pronoun `I`. */
function hasSameCase(a: Token, b: Token, { left, right }: ComparisonState, index: number): boolean {
  if (a.kind !== 'word') return false
  const [before, next, otherNext] = [left[index - 1], left[index + 1], right[index + 1]]
  if (a.key === 'i') return next?.kind === 'word' && (before === undefined || BEFORE_I.has(before.key))
  if (index > 0 || a.raw.slice(1) !== b.raw.slice(1) || !STARTERS.has(a.key)) return false
  return !NAMES.has(a.key) || [next, otherNext].every((item) => item !== undefined && item.raw === item.key)
}

/** The next word may be a name in lower case. */
const BEFORE_NAMES = words(
  `user users username usernames handle nickname alias login server servers host hostname hosts named called name domain
  repo repository namespace bucket branch @ install installing import importing package library module npm pip
  use uses using`,
)

/** Without an article, the next word may be mentioned, not used: `is untill British` */
const BEFORE_FIRST_SUBJECTS = words('is does')

function typoBetween(a: Token, b: Token, state: ComparisonState, index: number): string | undefined {
  if (!isSpelledPlainly(a, index) || !isSpelledPlainly(b, index)) return undefined
  const before = state.left[index - 1]?.key ?? ''
  if (BEFORE_NAMES.has(before) || (index === 1 && BEFORE_FIRST_SUBJECTS.has(before))) return undefined
  const [left, right] = removePossessives(a.key, b.key)
  const classes = [state.lexicon(left), state.lexicon(right)]
  const [word, typo] = classes[0] === 'common' ? [left, right] : [right, left]
  const isKnown = classes.every((item) => item === 'common' || item === 'real')
  if (isKnown || !classes.includes('common') || (index === 0 && !STARTERS.has(word))) return undefined
  if (state.lexicon.hasUsualLetters?.(word) === false || isDeliberate(word, typo)) return undefined
  const isName = (item: Token): boolean => item.raw !== item.key && item.key.startsWith(typo)
  if (index > 0 && (state.left.some(isName) || state.right.some(isName))) return undefined
  if (isFunctionWordTypo(word, typo)) return typo
  if (!isSafeTypo(word, typo) || isCoined(word, typo, state.lexicon)) return undefined
  return isUniqueCorrection(word, typo, state.lexicon) ? typo : undefined
}

/** Also looks up the British spelling: `despize` is despise, not a misspelling of despite. */
function classOf(word: string, lexicon: Lexicon): ReturnType<Lexicon> {
  const wordClass = lexicon(word)
  if (wordClass === 'common' || wordClass === 'real') return wordClass
  const british = word.replace(/(?<=[iy])z(?=(?:es?|ed|ing|ations?|ers?)$)/, 's')
  return british === word ? wordClass : lexicon(british)
}

function isSpelledPlainly(item: Token, index: number): boolean {
  return item.kind === 'word' && (item.raw === item.key || (index === 0 && isPlainWord(item)))
}

function areWordsKnown({ left, right, lexicon, typos }: ComparisonState): boolean {
  return [...left, ...right].every((item) => {
    if (item.kind !== 'word' || item.raw !== item.key || item.key.length < 2) return true
    const word = item.key.endsWith("'s") ? item.key.slice(0, -2) : item.key
    const wordClass = lexicon(word)
    return wordClass === 'common' || wordClass === 'real' || typos.includes(word)
  })
}

function kindOfDifference(item: Token | undefined, state: ComparisonState): Difference {
  if (item === undefined || haveSameItems(state.left, state.right)) return 'order'
  if (item.kind === 'number') return 'number'
  if (item.kind === 'exact') return 'quotation-or-code'
  if (item.kind !== 'word') return 'symbol'
  if (NEGATIONS.has(item.key)) return 'negation'
  if (QUESTION_WORDS.has(item.key)) return 'question-word'
  return isPlainWord(item) ? 'word' : 'name'
}

function haveSameItems(left: readonly Token[], right: readonly Token[]): boolean {
  const sortedKeys = (items: readonly Token[]): string =>
    items
      .map((item) => item.key)
      .sort()
      .join('\u0000')
  return left.length === right.length && sortedKeys(left) === sortedKeys(right)
}
