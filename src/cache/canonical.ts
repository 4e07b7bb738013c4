import { withoutCourtesies, withoutEnd } from './courtesies.ts'
import {
  ABOUT_LETTERS,
  ABOUT_WORDS,
  AFTER_BOUND_ARTICLE,
  AFTER_WOULD,
  BEFORE_ARTICLE,
  ENGLISH_HINTS,
  ENGLISH_MARKS,
  FILLERS,
  NEGATIONS,
  ORDER_MATTERS,
  QUESTION_WORDS,
  expandShortForm,
  plainSpelling,
} from './english.ts'
import { asWords, isPlainWord, tokenise, type Token } from './tokens.ts'

/** One thing that a text says. */
export interface Item extends Token {
  /** `the`, or `a` and `an`, where it may be missing on the other side. */
  readonly article?: 'the' | 'a'
}

/** What a text says, without what changes no answer: case, courtesies, short forms, fillers, final punctuation. */
export interface Canonical {
  readonly items: readonly Item[]
  /** True when slips of the finger may be forgiven: English, and not about spelling. */
  readonly lenient: boolean
}

/**
 * The meaning of a text as a list. In a language that is not known, and in a text about spelling or wording,
 * only the final punctuation (and in the former the case) is left out.
 */
export function canonicalise(text: string): Canonical {
  const form = formOf(text)
  // Two texts of nothing but courtesies or signs are not therefore the same.
  return form.items.length > 0 ? form : { items: tokenise(text).map(asWritten), lenient: false }
}

function formOf(text: string): Canonical {
  const tokens = tokenise(text.normalize('NFC'))
  const keys = new Set(tokens.map((token) => token.key))
  if (hasAny(keys, ABOUT_LETTERS)) return { items: tokens.map(asWritten), lenient: false }
  if (!isEnglish(keys)) return { items: withoutEnd(tokens), lenient: false }
  const plain = hasAny(keys, ABOUT_WORDS) ? expand(tokens) : respell(expand(tokens))
  return { items: markArticles(withSortedPair(withoutCourtesies(withoutFillers(plain)))), lenient: true }
}

/** The words that an embedding shall see; the guard looks at the case of identifiers. */
export function meaningOf(canonical: Canonical): string {
  const words = canonical.items.filter((item) => item.article === undefined).map((item) => item.key)
  return canonical.lenient ? words.join(' ').toLowerCase() : words.join(' ')
}

function hasAny(keys: ReadonlySet<string>, words: ReadonlySet<string>): boolean {
  for (const key of keys) if (words.has(key)) return true
  return false
}

function isEnglish(keys: ReadonlySet<string>): boolean {
  if (hasAny(keys, ENGLISH_MARKS) || (keys.has('is') && (keys.has('a') || keys.has('an')))) return true
  let hints = 0
  for (const key of keys) hints += ENGLISH_HINTS.has(key) ? 1 : 0
  return hints >= 2
}

function asWritten(token: Token): Item {
  return { ...token, key: token.raw }
}

function expand(tokens: readonly Token[]): readonly Token[] {
  return tokens.flatMap((token, index) => {
    if (token.kind !== 'word') return [token]
    const would = /^(i|you|he|she|we|they)'d$/.exec(token.key)?.[1]
    if (would !== undefined && AFTER_WOULD.has(tokens[index + 1]?.key ?? '')) return asWords(token, [would, 'would'])
    return asWords(token, expandShortForm(token.key))
  })
}

/** Names keep their spelling. */
function respell(tokens: readonly Token[]): readonly Token[] {
  return tokens.flatMap((token, index) =>
    isPlainWord(token) ? asWords(token, plainSpelling(token.key, tokens[index - 1]?.key ?? '')) : [token],
  )
}

function withoutFillers(items: readonly Token[]): readonly Token[] {
  return items.filter((item, index) => {
    const [before = '', next = ''] = [items[index - 1]?.key, items[index + 1]?.key]
    if (item.kind !== 'word' || NEGATIONS.has(before)) return true
    if (item.key === 'exactly') return !QUESTION_WORDS.has(before) && !(isQuestionVerb(before) && next !== '')
    if (item.key === 'in' && next === 'fact') return items.length < 3
    if (item.key === 'fact' && before === 'in') return items.length < 3 || NEGATIONS.has(items[index - 2]?.key ?? '')
    if (item.key === 'please') return !(before === 'you' || index === 0) || items.length === 1
    return !FILLERS.has(item.key) || items.length === 1
  })
}

function isQuestionVerb(word: string): boolean {
  return word === 'is' || word === 'are' || word === 'does' || word === 'do'
}

/** `a poet or a nurse` at the end of a text as `a nurse or a poet`, where no other word gives the order a meaning. */
function withSortedPair(items: readonly Token[]): readonly Token[] {
  const head = items.slice(0, -5)
  const [firstArticle, first, joint, secondArticle, second] = items.slice(-5)
  if (first === undefined || joint === undefined || second === undefined) return items
  const isPair = /^(?:and|or)$/.test(joint.key) && isArticle(firstArticle) && isArticle(secondArticle)
  if (!isPair || !isPlainWord(first) || !isPlainWord(second) || first.key <= second.key) return items
  if (firstArticle?.key.charAt(0) !== secondArticle?.key.charAt(0)) return items
  if (head.some((item) => ORDER_MATTERS.has(item.key))) return items
  return [...head, ...items.slice(-2), joint, ...items.slice(-5, -3)]
}

function isArticle(item: Token | undefined): boolean {
  return item?.kind === 'word' && /^(?:a|an|the)$/.test(item.key)
}

function markArticles(items: readonly Token[]): readonly Item[] {
  return items.map((item, index) => {
    const before = items[index - 1]
    const next = items[index + 1]
    const free =
      item.kind === 'word' &&
      (before === undefined || before.kind === 'stop' || (before.kind === 'word' && mayLackArticle(item, before))) &&
      next !== undefined &&
      (next.kind === 'word' || next.kind === 'exact') &&
      !AFTER_BOUND_ARTICLE.has(next.key) &&
      isInside(items[index + 2])
    if (!free) return item.kind === 'word' && item.key === 'an' ? { ...item, key: 'a' } : item
    if (item.key === 'the' && item.raw === item.raw.toLowerCase()) return { ...item, article: 'the' }
    if (item.key === 'the' && item.opens) return { ...item, article: 'the' }
    if ((item.key === 'a' || item.key === 'an') && (item.opens || item.raw !== 'A')) return { ...item, article: 'a' }
    return item
  })
}

/** What a sentence ends with is what it is about: `explain the matrix` is not `explain matrix`. */
function isInside(afterNext: Token | undefined): boolean {
  return afterNext !== undefined && afterNext.kind !== 'stop'
}

/** `the` is never anything else; `a` may be a letter behind a noun. */
function mayLackArticle(article: Token, before: Token): boolean {
  return BEFORE_ARTICLE.has(before.key) || (article.key === 'the' && before.key !== 'the')
}
