import {
  ABOUT_LETTERS,
  ABOUT_WORDS,
  AFTER_SIGNIFICANT_ARTICLE,
  AFTER_WOULD,
  BEFORE_ARTICLE,
  ENGLISH_HINTS,
  ENGLISH_MARKERS,
  FILLERS,
  FOREIGN_HINTS,
  NEGATIONS,
  NUMBER_WORDS,
  ORDER_MATTERS,
  QUESTION_WORDS,
  SIZE_UNITS,
  expandContraction,
  normalizeWord,
} from './english.ts'
import { removeFinalPunctuation, removePleasantries } from './pleasantries.ts'
import { toWordTokens, isPlainWord, tokenize, correctSwappedLetters, type Token } from './tokenize.ts'

export interface CanonicalToken extends Token {
  /** Set for an article that an equivalent text may omit: `the`, or `a` for `a` and `an`. */
  readonly article?: 'the' | 'a'
}

/** A text without insignificant differences: case, pleasantries, contractions, fillers and final punctuation. */
export interface Canonical {
  readonly items: readonly CanonicalToken[]
  /**
   * When two texts are compared, typos are ignored if at least one of the texts is English. `none`: every character is
   * significant, as in a text about spelling.
   */
  readonly language: 'english' | 'unknown' | 'none'
}

/**
 * Canonicalizes a text. Removes only the final punctuation if the text is not recognized as English. Leaves a text about
 * spelling unchanged.
 */
export function canonicalize(text: string): Canonical {
  const tokens = tokenize(text.normalize('NFC'))
  const form = formOf(tokens)
  // Texts that consist only of pleasantries or punctuation must remain different.
  return form.items.length > 0 ? form : { items: tokens.map(toExactToken), language: 'none' }
}

function formOf(written: readonly Token[]): Canonical {
  const tokens = written.map(correctSwappedLetters)
  const traits = traitsOf(tokens)
  if (traits.isAboutLetters) return { items: written.map(toExactToken), language: 'none' }
  if (!traits.isEnglish) return { items: removeFinalPunctuation(written), language: 'unknown' }
  const plain = rewrite(tokens, !traits.isAboutWords)
  return { items: markArticles(sortFinalPair(removePleasantries(removeFillers(plain)))), language: 'english' }
}

/** Returns the text to embed, without omissible articles. Converts English text to lower case. */
export function textToEmbed(canonical: Canonical): string {
  let text = ''
  for (const item of canonical.items) {
    if (item.article === undefined) text = text === '' ? item.key : `${text} ${item.key}`
  }
  return canonical.language === 'english' ? text.toLowerCase() : text
}

interface Traits {
  readonly isEnglish: boolean
  readonly isAboutLetters: boolean
  readonly isAboutWords: boolean
}

function traitsOf(tokens: readonly Token[]): Traits {
  const keys = new Set<string>()
  tokens.forEach((token, index) => {
    if (!SIZE_UNITS.has(token.key) || !isNumber(tokens[index - 1])) keys.add(token.key)
  })
  let [marks, hints, foreignHints, isAboutLetters, isAboutWords] = [0, 0, 0, false, false]
  for (const key of keys) {
    if (ENGLISH_MARKERS.has(key)) marks += 1
    if (ENGLISH_HINTS.has(key)) hints += 1
    if (FOREIGN_HINTS.has(key)) foreignHints += 1
    isAboutLetters ||= ABOUT_LETTERS.has(key)
    isAboutWords ||= ABOUT_WORDS.has(key)
  }
  const hasArticle = keys.has('is') && (keys.has('a') || keys.has('an'))
  const mayBeEnglish = marks > 0 || (hints >= 2 && foreignHints === 0) || hasArticle
  return { isEnglish: mayBeEnglish && 2 * marks + hints >= 2 * foreignHints, isAboutLetters, isAboutWords }
}

function isNumber(token: Token | undefined): boolean {
  return token?.kind === 'number' || NUMBER_WORDS.has(token?.key ?? '')
}

function toExactToken(token: Token): CanonicalToken {
  return { ...token, key: token.raw }
}

/** Expands contractions. If `shouldRespell` is true, also normalizes spellings, synonyms and numbers, except in names. */
function rewrite(tokens: readonly Token[], shouldRespell: boolean): readonly Token[] {
  const rewritten: Token[] = []
  let before = ''
  for (const [index, token] of tokens.entries()) {
    const expanded = token.kind === 'word' ? expand(token, tokens[index + 1]) : undefined
    for (const word of expanded ?? [token]) {
      const plain = shouldRespell && isPlainWord(word) ? normalizeWord(word.key, before) : undefined
      before = word.key
      const number = shouldRespell && isPlainWord(word) ? NUMBER_WORDS.get(word.key) : undefined
      if (number !== undefined) rewritten.push({ ...word, kind: 'number', key: number })
      else if (plain === undefined) rewritten.push(word)
      else rewritten.push(...toWordTokens(word, plain))
    }
  }
  return rewritten
}

const PRONOUN_D = /^(i|you|he|she|we|they)'d$/

function expand(token: Token, next: Token | undefined): readonly Token[] | undefined {
  const expanded = expandContraction(token.key)
  if (expanded !== undefined) return toWordTokens(token, expanded)
  const pronoun = token.key.endsWith("'d") ? PRONOUN_D.exec(token.key)?.[1] : undefined
  if (pronoun === undefined || !AFTER_WOULD.has(next?.key ?? '')) return undefined
  return toWordTokens(token, [pronoun, 'would'])
}

function removeFillers(items: readonly Token[]): readonly Token[] {
  return items.filter((item, index) => {
    if (!POSSIBLE_FILLERS.has(item.key) || item.kind !== 'word') return true
    const [before = '', next = ''] = [items[index - 1]?.key, items[index + 1]?.key]
    if (NEGATIONS.has(before)) return true
    if (item.key === 'exactly') {
      const isAfterVerb = isQuestionVerb(before) && items[index - 2]?.key === 'what' && next !== ''
      return !QUESTION_WORDS.has(before) && !isAfterVerb
    }
    if (item.key === 'in') return next !== 'fact' || items.length < 3
    if (item.key === 'fact') return before !== 'in' || items.length < 3 || NEGATIONS.has(items[index - 2]?.key ?? '')
    if (item.key === 'please') {
      // `would you please describe` is a request, unlike `would you describe`.
      const followsYou = before === 'you' && items[index - 2]?.key !== 'would'
      return !(followsYou || index === 0) || items.length === 1
    }
    if (item.key === 'guys') return before !== 'you'
    return items.length === 1
  })
}

const POSSIBLE_FILLERS: ReadonlySet<string> = new Set([...FILLERS, 'exactly', 'in', 'fact', 'please', 'guys'])

function isQuestionVerb(word: string): boolean {
  return word === 'is' || word === 'are' || word === 'does' || word === 'do'
}

function sortFinalPair(items: readonly Token[]): readonly Token[] {
  const head = items.slice(0, -5)
  const [firstArticle, first, conjunction, secondArticle, second] = items.slice(-5)
  if (first === undefined || conjunction === undefined || second === undefined) return items
  const isPair = /^(?:and|or)$/.test(conjunction.key) && isArticle(firstArticle) && isArticle(secondArticle)
  if (!isPair || !isPlainWord(first) || !isPlainWord(second) || first.key <= second.key) return items
  if (firstArticle?.key.charAt(0) !== secondArticle?.key.charAt(0)) return items
  if (head.some((item) => ORDER_MATTERS.has(item.key))) return items
  return [...head, ...items.slice(-2), conjunction, ...items.slice(-5, -3)]
}

function isArticle(item: Token | undefined): boolean {
  return item?.kind === 'word' && /^(?:a|an|the)$/.test(item.key)
}

function markArticles(items: readonly Token[]): readonly CanonicalToken[] {
  return items.map((item, index) => {
    if (!isArticle(item)) return item
    if (isOmissible(item, items.slice(Math.max(0, index - 1), index + 3), index > 0)) {
      if (item.key === 'the') return { ...item, article: 'the' }
      if (item.startsSentence || item.raw !== 'A') return { ...item, article: 'a' }
    }
    return item.key === 'an' ? { ...item, key: 'a' } : item
  })
}

/**
 * Returns true if an equivalent text may omit the article. `around` contains the preceding token (if any), the article,
 * and the next two tokens.
 */
function isOmissible(article: Token, around: readonly Token[], hasBefore: boolean): boolean {
  const [before, next, afterNext] = hasBefore ? [around[0], around[2], around[3]] : [undefined, around[1], around[2]]
  const isArticleHere =
    before === undefined || before.kind === 'stop' || (before.kind === 'word' && isArticleAfter(article, before))
  if (!isArticleHere || next === undefined || (next.kind !== 'word' && next.kind !== 'exact')) return false
  const isInName = article.key === 'the' && !article.startsSentence && article.raw !== article.key
  // The Amazon is not Amazon, but the United States is United States.
  const isBeforeName = article.key === 'the' && isName(next) && !isName(afterNext)
  return !isInName && !isBeforeName && !AFTER_SIGNIFICANT_ARTICLE.has(next.key) && isInsideSentence(afterNext)
}

function isName(token: Token | undefined): boolean {
  return token !== undefined && !token.startsSentence && /^\p{Lu}\p{Ll}+$/u.test(token.raw)
}

/**
 * Returns false before the last word of a sentence, where the article is significant: `explain the matrix` differs from
 * `explain matrix`.
 */
function isInsideSentence(afterNext: Token | undefined): boolean {
  return afterNext !== undefined && afterNext.kind !== 'stop'
}

/** Returns true if the word is an article. After a noun, `a` may be a letter: vitamin A. */
function isArticleAfter(article: Token, before: Token): boolean {
  return BEFORE_ARTICLE.has(before.key) || (article.key === 'the' && before.key !== 'the')
}
