import { compose } from './cacheability.ts'
import {
  AFTER_SIGNIFICANT_ARTICLE,
  BEFORE_ARTICLE,
  NEGATIONS,
  ORDER_MATTERS,
  QUESTION_WORDS,
  rewriteWords,
  traitsOf,
  words,
} from './english.ts'
import { countWords, lineOf, MAX_SEARCHED_TOKENS, QUESTION_WORD, rewordQuestion } from './rewordings.ts'
import { isPlainWord, tokenize, correctSwappedLetters, type Token } from './tokenize.ts'

export interface CanonicalToken extends Token {
  /** Set for an article that an equivalent text may omit: `the`, or `a` for `a` and `an`. */
  readonly article?: 'the' | 'a'
}

export interface Canonical {
  readonly items: readonly CanonicalToken[]
  /** `none`: every character is significant, as in a text about spelling. */
  readonly language: 'english' | 'unknown' | 'none'
}

export function canonicalize(text: string): Canonical {
  const tokens = tokenize(compose(text))
  const form = formOf(tokens)
  // Texts that consist only of pleasantries or punctuation must remain different.
  return form.items.length > 0 ? form : { items: tokens.map(toExactToken), language: 'none' }
}

function formOf(written: readonly Token[]): Canonical {
  const tokens = written.map(correctSwappedLetters)
  const traits = traitsOf(tokens)
  if (traits.isAboutLetters) return { items: written.map(toExactToken), language: 'none' }
  if (!traits.isEnglish) return { items: removeFinalPunctuation(written), language: 'unknown' }
  const plain = rewriteWords(tokens, !traits.isAboutWords)
  return { items: markArticles(sortFinalPair(removePleasantries(removeFillers(plain)))), language: 'english' }
}

export function textToEmbed(canonical: Canonical): string {
  let text = ''
  for (const item of canonical.items) {
    if (item.article === undefined) text = text === '' ? item.key : `${text} ${item.key}`
  }
  return canonical.language === 'english' ? text.toLowerCase() : text
}

function toExactToken(token: Token): CanonicalToken {
  return { ...token, key: token.raw }
}

const TELL =
  '(?:tell me|let me know|inform me|show me|teach me|explain to me|explain|help me(?: to)? (?:understand|find out|figure out)|enlighten me(?: on| about)?|clarify for me|give me an idea of)'
/** Texts that an assistant writes. `can you write a will without a lawyer` is a question, not a request. */
const TEXTS =
  '(?:poem|haiku|limerick|song|story|essay|summary|paragraph|joke|slogan|outline|function|script|program|query|regex|unit test|blog post|tweet|list)'
const REQUEST = [
  '(?:explain|describe|summarize|outline|elaborate|clarify|define|list|suggest|recommend|compare|analyze|review|draft',
  '|(?:tell|show|give|help|teach|walk|find|write|make|create|generate|build) (?:me|us)',
  `|(?:write|create|generate|compose)(?= (?:a|an) (?:[a-z]+ ){0,3}?${TEXTS} (?:about|on|that|for|in|to|of|with)))`,
].join('')
const MODAL = '(?:can|could|would|will)'
const START = `(?:${QUESTION_WORD}|can|could|would|will|please|i|is|are|do|does|tell|explain)`
/** Excludes `how to`, because `do you know how to swim` is a direct question. */
const INDIRECT_QUESTION =
  '(?:(?:what|who|when|where|why|which)|how (?:many|much|long|far|often|old|i can|i could|can i|could i|do i))'

const OPENINGS = [
  /^(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening))(?: there| everyone| all)?(?: [.,!])+ (?=\S)/,
  new RegExp(`^(?:hi|hello|hey)(?: there)? (?=${START} )`),
  /^(?:please|kindly) (?:, )?(?=\S)/,
  /^(?:ok|okay|so|well|by the way|in fact|just|anyway|just (?:wondering|curious|checking)|out of (?:pure )?curiosity|if possible|if you do not mind|if you can|if i may ask) , (?=\S)/,
  new RegExp(`^(?:ok |so |and )(?=${QUESTION_WORD} )`),
  /^(?:sorry|excuse me|apologies|sorry to (?:bother|disturb|trouble) you)(?: ,)?(?: but)?(?: [,.:-])? (?=(?:what|who|when|where|why|how|which|can|could|is|are|do|does) )/,
  /^(?:i have (?:a|one) (?:quick |short |small |simple )?question|(?:my|the|one|another) (?:quick )?question(?: is| for you)?|(?:a )?(?:quick|short|small)? ?question|i need (?:some )?help|help)(?: [.,:!-])+ (?=\S)/,
  new RegExp(
    `^(?:(?:${MODAL} (?:you|someone|somebody|anyone|anybody)|would you be able to|is it possible for you to|would it be possible for you to|i would (?:appreciate it|be grateful) if you could) (?:please |kindly )?)?(?:please )?${TELL}(?: please)?(?: [,:])? (?=${QUESTION_WORD} )`,
  ),
  new RegExp(
    `^(?:would|do) you mind (?:telling me|letting me know|explaining(?: to me)?)(?: [,:])? (?=${QUESTION_WORD} )`,
  ),
  new RegExp(`^(?:is there )?any chance (?:that )?you (?:can|could) (?:${TELL}) (?=${QUESTION_WORD} )`),
  new RegExp(
    `^i (?:want|wanted|need|would like|would love|am trying|am looking|am curious|am interested|was hoping) to (?:know|ask|ask you|understand|find out|learn|figure out|work out|see|hear)(?: [,:])? (?=${QUESTION_WORD} )`,
  ),
  new RegExp(`^(?:(?:i am|i was)(?: just)? |just )(?:wondering|curious)(?: about)?(?: [,:])? (?=${QUESTION_WORD} )`),
  new RegExp(`^i wonder(?: [,:])? (?=${QUESTION_WORD} )`),
  new RegExp(
    `^(?:do you (?:happen to |by any chance )?know|does any(?:one|body) (?:here )?know|(?:may|can|could) i (?:ask|know)|any idea|do you have any idea|have you any idea)(?: [,:])? (?=${INDIRECT_QUESTION} )`,
  ),
  new RegExp(`^(?:${MODAL} you (?:please|kindly)|(?:can|could|will) you) (?=${REQUEST} )`),
  // `would you recommend a dog` asks for an opinion.
  new RegExp(`^would you (?!(?:describe|define|suggest|recommend|compare) )(?=${REQUEST} )`),
  /^i (?:want|need|would like) you to (?=(?!be |know |understand |not |stop |never |always )[a-z]+ )/,
  /^at (?=what time )/,
]

/** The first words of `OPENINGS`. A text that begins with another word needs no search. */
const FIRST_WORDS = words(
  `hi hello hey greetings good please kindly ok okay so and well by in just anyway out if sorry excuse apologies
  i my the one another a quick short small question help can could will would is tell let inform show teach explain
  enlighten clarify give do does any may have at`,
)

/** Openings after which a question may have the word order of a clause: `tell me what the price is`. */
const CLAUSE_OPENING = new RegExp(
  `(?:${TELL}|telling me|explaining|letting me know|know|ask|see|understand|out|learn|wonder|wondering|curious|about|idea)(?: please)?(?: to me)? $`,
)

/** Thanks and `please` at the end of a text, after a punctuation mark, unlike in `how do you say thank you`. */
const ENDING =
  /(?<=\S)(?: [.,!?])+(?: (?:many )?(?:please|thanks|thank you|cheers|much appreciated|if possible|if you can|if you could|if you do not mind)(?: (?:so|very) much| a lot| in advance)*)(?: [.,!?])*$/

/** A final `please` without a mark before it, except where it may be the object, as in `when do i use please`. */
const FINAL_PLEASE = new RegExp(
  `(?<=^(?:${MODAL} you )?${REQUEST} .*) please(?: [.!?])*$|(?<=^${QUESTION_WORD} .* (?!(?:use|used|to|and|or|with|than|like|the|a|of|not|you|i|we|they|he|she|it|as|do|does|can|will|would) )\\S+) please(?: [.!?])*$`,
)

const FOR_ME = /(?<=^(?:write|draft|summarize|create|generate|compose|list) .*) for me$/

/** `write me a poem` means `write a poem`. */
const REQUEST_ME = /^(?:write|draft|create|generate|compose|find|suggest|recommend) (?=me (?:a|an|some|0) )/

const ABOUT_PLEASANTRIES = words(
  ': say says said saying reply replies respond responds response answer answers message email letter',
)

function removePleasantries(tokens: readonly Token[]): readonly Token[] {
  let items = tokens
  let isClause = false
  for (;;) {
    const opening = openingOf(items)
    if (opening === undefined) break
    items = items.slice(countWords(opening))
    isClause = CLAUSE_OPENING.test(opening)
  }
  return rewordQuestion(removeForMe(removeFinalPunctuation(removeEnding(items))), isClause)
}

function removeForMe(items: readonly Token[]): readonly Token[] {
  if (items.length > MAX_SEARCHED_TOKENS || !items.some((item) => item.key === 'me')) return items
  const line = lineOf(items)
  const rest = FOR_ME.test(line) ? items.slice(0, -2) : items
  return REQUEST_ME.test(line) ? rest.filter((_, index) => index !== 1) : rest
}

function openingOf(items: readonly Token[]): string | undefined {
  if (!FIRST_WORDS.has(items[0]?.key ?? '')) return undefined
  const line = lineOf(items.slice(0, MAX_SEARCHED_TOKENS))
  for (const pattern of OPENINGS) {
    const opening = pattern.exec(line)?.[0]
    if (opening !== undefined) return opening
  }
  return undefined
}

function removeEnding(items: readonly Token[]): readonly Token[] {
  const line = lineOf(items.slice(-MAX_SEARCHED_TOKENS))
  if (!/please|thank|cheers/.test(line)) return items
  if (items.some((item) => ABOUT_PLEASANTRIES.has(item.key))) return items
  const finalPlease = items.length <= MAX_SEARCHED_TOKENS ? FINAL_PLEASE.exec(line)?.[0] : undefined
  const ending = ENDING.exec(line)?.[0] ?? finalPlease
  return ending === undefined ? items : items.slice(0, items.length - countWords(ending))
}

function removeFinalPunctuation(items: readonly Token[]): readonly Token[] {
  const last = items.findLastIndex((item) => item.kind !== 'stop')
  if (last < 0 || last === items.length - 1) return items
  return items.slice(0, isFactorial(items[last], items[last + 1]) ? last + 2 : last + 1)
}

/** The mark in 5!, n! and (n - 1)! is not final punctuation. */
function isFactorial(operand: Token | undefined, mark: Token | undefined): boolean {
  return mark?.raw === '!' && !(operand?.kind === 'word' && operand.key.length > 1)
}

function removeFillers(items: readonly Token[]): readonly Token[] {
  return items.filter((item, index) => {
    if (!POSSIBLE_FILLERS.has(item.key) || item.kind !== 'word') return true
    const [before = '', next = ''] = [items[index - 1]?.key, items[index + 1]?.key]
    if (NEGATIONS.has(before)) return true
    if (item.key === 'exactly') {
      const isAfterVerb = QUESTION_VERBS.has(before) && items[index - 2]?.key === 'what' && next !== ''
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

const POSSIBLE_FILLERS = words('actually really basically indeed exactly in fact please guys')

const QUESTION_VERBS = words('is are does do')

function sortFinalPair(items: readonly Token[]): readonly Token[] {
  const conjunction = items.at(-3)
  if (conjunction?.key !== 'and' && conjunction?.key !== 'or') return items
  const head = items.slice(0, -5)
  const [firstArticle, first, , secondArticle, second] = items.slice(-5)
  if (first === undefined || second === undefined || !isArticle(firstArticle) || !isArticle(secondArticle)) return items
  if (!isPlainWord(first) || !isPlainWord(second) || first.key <= second.key) return items
  if (firstArticle?.key.charAt(0) !== secondArticle?.key.charAt(0)) return items
  if (head.some((item) => ORDER_MATTERS.has(item.key))) return items
  return [...head, ...items.slice(-2), conjunction, ...items.slice(-5, -3)]
}

function isArticle(item: Token | undefined): boolean {
  return item?.kind === 'word' && (item.key === 'the' || item.key === 'a' || item.key === 'an')
}

function markArticles(items: readonly Token[]): readonly CanonicalToken[] {
  return items.map((item, index) => {
    if (!isArticle(item)) return item
    if (isOmissible(item, items, index)) {
      if (item.key === 'the') return { ...item, article: 'the' }
      if (item.startsSentence || item.raw !== 'A') return { ...item, article: 'a' }
    }
    return item.key === 'an' ? { ...item, key: 'a' } : item
  })
}

function isOmissible(article: Token, items: readonly Token[], index: number): boolean {
  const [before, next, afterNext] = [items[index - 1], items[index + 1], items[index + 2]]
  const isArticleHere =
    before === undefined || before.kind === 'stop' || (before.kind === 'word' && isArticleAfter(article, before))
  if (!isArticleHere || next === undefined || (next.kind !== 'word' && next.kind !== 'exact')) return false
  // Before the last word of a sentence, an article is significant: `explain the matrix` differs from `explain matrix`.
  if (afterNext === undefined || afterNext.kind === 'stop') return false
  const isInName = article.key === 'the' && !article.startsSentence && article.raw !== article.key
  // The Amazon is not Amazon, but the United States is United States.
  const isBeforeName = article.key === 'the' && isName(next) && !isName(afterNext)
  return !isInName && !isBeforeName && !AFTER_SIGNIFICANT_ARTICLE.has(next.key)
}

/** After a noun, `a` may be a letter: vitamin A. */
function isArticleAfter(article: Token, before: Token): boolean {
  return BEFORE_ARTICLE.has(before.key) || (article.key === 'the' && before.key !== 'the')
}

function isName(token: Token): boolean {
  return !token.startsSentence && /^\p{Lu}\p{Ll}+$/u.test(token.raw)
}
