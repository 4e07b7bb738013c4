import { compose } from './cacheability.ts'
import { isAboutSubstances } from './coined-words.ts'
import { isEnglish, NEGATIONS, QUESTION_WORDS, rewriteWords, words } from './english.ts'
import { countWords, lineOf, MAX_SEARCHED_TOKENS, QUESTION_WORD, rewordQuestion } from './rewordings.ts'
import {
  hasMarkedText,
  isAboutWording,
  mayBeAboutSpelling,
  mayEndInTitle,
  mayQuote,
  mentionsTextWork,
} from './text-work.ts'
import { correctSwappedLetters, isPlainWord, tokenize, type Token } from './tokenize.ts'

export interface Canonical {
  readonly items: readonly Token[]
  /** `none`: every character is significant, as in a text to work on or in a language other than English. */
  readonly language: 'english' | 'none'
  readonly text: string
  /** False if a misspelling may be the subject of the text. */
  readonly mayHaveTypos: boolean
}

export function canonicalize(text: string): Canonical {
  const composed = compose(text)
  const written = tokenize(composed.trim())
  const items = formOf(composed, written)
  // Texts that consist only of pleasantries or punctuation must remain different.
  return items === undefined || items.length === 0
    ? { items: written.map(toExactToken), language: 'none', text, mayHaveTypos: false }
    : { items, language: 'english', text, mayHaveTypos: !mayBeAboutSpelling(composed) && !isAboutSubstances(composed) }
}

/** Returns undefined for a text to work on, for another language than English, and for several sentences. */
function formOf(text: string, written: readonly Token[]): readonly Token[] | undefined {
  if (hasMarkedText(text) || mentionsTextWork(text) || isAboutWording(text)) return undefined
  const tokens = mayBeAboutSpelling(text) ? written : written.map(correctSwappedLetters)
  if (!isEnglish(tokens)) return undefined
  const items = removePleasantries(removePlease(rewriteWords(tokens, mayQuote(text))), mayEndInTitle(text))
  if (items.some((item, index) => repeatsForm(items, item, index))) return undefined
  return items.every((item, index) => isOrdinary(item, items[index + 1])) ? items : undefined
}

const BETWEEN_FORMS = words('or and vs versus from to than nor')

/** After normalization, `can't or cannot` has the same words on both sides: the form is the subject. */
function repeatsForm(items: readonly Token[], { key }: Token, index: number): boolean {
  if (!BETWEEN_FORMS.has(key)) return false
  return [1, 2].some((length) => {
    const keysFrom = (from: number): string => lineOf(items.slice(Math.max(0, from), from + length))
    return index >= length && keysFrom(index - length) === keysFrom(index + 1)
  })
}

const ORDINARY_SYMBOLS = ",%$€£+/#&.-'°"

/** A symbol between spaces may set off a text to work on, or be an operator. */
function isOrdinary(item: Token, next: Token | undefined): boolean {
  if (item.kind === 'stop') return next === undefined
  if (item.kind !== 'symbol') return true
  return ORDINARY_SYMBOLS.includes(item.raw) && !(item.isSpaced && (next === undefined || next.isSpaced))
}

/** Omits articles of English texts and a mark after a final name, which say little about the similarity of two questions. */
export function textToEmbed({ items, language }: Canonical): string {
  if (language === 'none') return items.map((item) => item.key).join(' ')
  const isMarkOfName = ({ kind }: Token, index: number): boolean =>
    kind === 'stop' && items[index - 1]?.kind === 'word' && items[index - 1]?.raw !== items[index - 1]?.key
  const keys = items.filter((item, index) => !isMarkOfName(item, index)).map((item) => item.key)
  const significant = keys.filter((key) => key !== 'the' && key !== 'a' && key !== 'an')
  return significant.join(' ').toLowerCase()
}

function toExactToken(token: Token): Token {
  return { ...token, key: token.raw }
}

const TELL =
  '(?:tell me|let me know|inform me|explain to me|explain|help me(?: to)? (?:understand|find out|figure out))'
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
  // `Good morning` contains the time of day.
  /^(?:hi|hello|hey|greetings)(?: there| everyone| all)?(?: [.,!])+ (?!(?:hi|hello|hey|greetings) )(?=\S)/,
  // `Hi is short for what` is a question about the word.
  new RegExp(`^(?:hi|hello|hey)(?: there)? (?!(?:is|are|do|does) )(?=${START} )`),
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
  `hi hello hey greetings please kindly ok okay so and well by in just anyway out if sorry excuse apologies
  i my the one another a quick short small question help can could will would is tell let inform show teach explain
  enlighten clarify give do does any may have at`,
)

/** Openings after which a question may have the word order of a clause: `tell me what the price is`. */
const CLAUSE_OPENING = new RegExp(
  `(?:${TELL}|telling me|explaining|letting me know|know|ask|see|understand|out|learn|wonder|wondering|curious|about|idea)(?: please)?(?: to me)? $`,
)

/** Thanks after a comma and before a question mark are part of the question: `what is the subtext of fine, thanks?` */
const THANKS_IN_QUESTION = /, (?:many )?(?:thanks|thank you|cheers)[a-z ]* \?/

/** Thanks and `please` at the end of a text, after a punctuation mark, unlike in `how do you say thank you`. */
const ENDING =
  /(?<=\S(?: [.!?])*)(?: ,)?(?<= [.,!?])(?: (?:many )?(?:please|thanks|thank you|cheers|much appreciated|if possible|if you can|if you could|if you do not mind)(?: (?:so|very) much| a lot| in advance)*)(?: [.,!?])*$/
/** The mark after these words belongs to the question: `where is it, please?` */
const KEEPS_MARK = /(?: please| possible| can| could| mind) ([.?])$/

/** A final `please` without a mark before it, except where it may be the object, as in `when do i use please`. */
const FINAL_PLEASE = new RegExp(
  `(?<=^(?:${MODAL} you )?${REQUEST} .*) please(?: [.!?])*$|(?<=^${QUESTION_WORD} .* (?<!^\\S+ (?:do|does|did) )(?!(?:yes|no|pretty|use|used|before|after|to|and|or|with|than|like|the|a|of|not|you|i|we|they|he|she|it|as|do|does|can|will|would) )\\S+) please(?: [.!?])*$`,
)

/** `write me a poem` means `write a poem`. */
const REQUEST_ME = /^(?:write|draft|create|generate|compose|find|suggest|recommend) (?=me (?:a|an|some|0) )/

const ABOUT_PLEASANTRIES = words(
  ': say says said saying reply replies respond responds response answer answers message email letter',
)

function removePleasantries(tokens: readonly Token[], mayEndInTitle: boolean): readonly Token[] {
  let items = tokens
  let [isClause, isAsked] = [false, false]
  for (;;) {
    const opening = openingOf(items)
    if (opening === undefined) break
    items = items.slice(countWords(opening))
    isClause = CLAUSE_OPENING.test(opening)
    isAsked ||= ASKING.test(opening)
  }
  const ended = removeRepeatedMarks(removeEnding(items, mayEndInTitle))
  const mark = finalMarkOf(ended, isClause || isAsked)
  if (mark === undefined) return rewordQuestion(removeMe(ended), isClause)
  const question = rewordQuestion(removeMe(ended.slice(0, -1)), isClause)
  const last = question.at(-1)
  // After a name, the mark may be part of it: `the band Therapy?`
  return last === undefined || (last.kind === 'word' && last.raw === last.key) ? question : [...question, mark]
}

/** Openings to which the question mark of a request belongs: `could you explain`. */
const ASKING = /^(?:can|could|would|will|do|does|is|any|may|have) /

function removeMe(items: readonly Token[]): readonly Token[] {
  if (items.length > MAX_SEARCHED_TOKENS || !items.some((item) => item.key === 'me')) return items
  return REQUEST_ME.test(lineOf(items)) ? items.filter((_, index) => index !== 1) : items
}

function openingOf(items: readonly Token[]): string | undefined {
  if (!FIRST_WORDS.has(items[0]?.key ?? '')) return undefined
  const line = lineOf(items.slice(0, MAX_SEARCHED_TOKENS))
  for (const pattern of OPENINGS) {
    const opening = pattern.exec(line)?.[0]
    // `Tell Me Why` is a title.
    if (opening !== undefined && items.slice(1, countWords(opening)).every(isPlainOrI)) return opening
  }
  return undefined
}

function removeEnding(items: readonly Token[], mayEndInTitle: boolean): readonly Token[] {
  const line = lineOf(items.slice(-MAX_SEARCHED_TOKENS))
  if (!/please|thank|cheers/.test(line) || THANKS_IN_QUESTION.test(line)) return items
  if (items.some((item) => ABOUT_PLEASANTRIES.has(item.key))) return items
  const finalPlease = items.length <= MAX_SEARCHED_TOKENS ? FINAL_PLEASE.exec(line)?.[0] : undefined
  const ending = ENDING.exec(line)?.[0] ?? finalPlease
  if (ending === undefined) return items
  const rest = items.slice(0, items.length - countWords(ending))
  if (mayEndInTitle && rest.at(-1)?.kind !== 'stop') return items
  const last = items.at(-1)
  return KEEPS_MARK.test(ending) && last !== undefined && rest.at(-1)?.kind !== 'stop' ? [...rest, last] : rest
}

function isPlainOrI(token: Token): boolean {
  return token.kind !== 'word' || isPlainWord(token) || token.key === 'i'
}

/** Words with which a question or request begins. Their case at the beginning is not significant. */
export const STARTERS: ReadonlySet<string> = words(
  `what who whom whose when where why how which is are was were am do does did can could will would should may might
  must has have had explain describe list name suggest recommend compare give show tell find write create generate make
  draft help please i you we they he she it there if in on at for to the a an my your`,
)
const NO_QUESTION = words('name i you we they he she it there if in on at for to the a an my your')

/** In a text about code, a final mark may belong to a name: `empty?`. */
const CODE_WORDS = words(
  `method methods function functions operator operators macro macros predicate predicates command commands symbol symbols
  sign signs mark marks notation annotation move moves chess syntax code call calls called variable variables factorial
  ruby rust elixir clojure scheme lisp racket crystal julia swift kotlin vim prolog perl`,
)

/** Excludes letters and abbreviations. */
const ORDINARY_WORD = /^[A-Za-z]['a-z]+$/

/** Verbs of requests, after which a question mark may be part of a name: `explain nil?` */
const REQUEST_STARTERS = words(
  'explain describe list suggest recommend compare give show tell find write create generate make draft help please',
)

/** Returns a `?` after the last word of a question, or a `.`, also of a request. All other marks are significant. */
function finalMarkOf(items: readonly Token[], isAsked: boolean): Token | undefined {
  const [first, word, mark] = [items[0], items.at(-2), items.at(-1)]
  if (first === undefined || word === undefined || mark?.kind !== 'stop') return undefined
  const isRequest = REQUEST_STARTERS.has(first.key)
  const isQuestion = (STARTERS.has(first.key) && !NO_QUESTION.has(first.key)) || QUESTION_WORDS.has(items[1]?.key ?? '')
  const isPlainEnd = word.kind === 'word' && ORDINARY_WORD.test(word.raw) && !mark.isSpaced
  if (!isQuestion || !isPlainEnd || (mark.raw !== '.' && (mark.raw !== '?' || (isRequest && !isAsked))))
    return undefined
  if (items.some((item) => CODE_WORDS.has(item.key))) return undefined
  // `tell me who it is.` asks a question.
  return isRequest || !isAsked ? mark : { ...mark, raw: '?', key: '?' }
}

const MIN_WORDS_BEFORE_MARKS = 4
/** The next word may be a name: `what does the method call empty??` */
const BEFORE_FINAL_NAMES = words('is are was were be does do did called named than not of and or to as like with use')
/** The marks may be the subject, or the tone of the text. */
const ABOUT_MARKS = words(
  `it this that these those my me am you your mark marks sign signs symbol symbols tone sound angry rude pushy shouting end ending
  finish last final one two three more enough single both double doubled twice repeated same`,
)

/** Returns a question with one `?` for several after its last word. Elsewhere, each mark may be code or notation. */
function removeRepeatedMarks(items: readonly Token[]): readonly Token[] {
  const end = items.findLastIndex(({ raw }) => raw !== '?') + 1
  if (items.length - end < 2) return items
  const [first, word, before] = [items[0], items[end - 1], items[end - 2]]
  if (first === undefined || word === undefined || before === undefined || end < MIN_WORDS_BEFORE_MARKS) return items
  const isQuestion = STARTERS.has(first.key) && !NO_QUESTION.has(first.key) && !REQUEST_STARTERS.has(first.key)
  const isPlainEnd = word.kind === 'word' && word.raw === word.key && ORDINARY_WORD.test(word.raw)
  const isAboutMarks = items.some(({ key }) => CODE_WORDS.has(key) || ABOUT_MARKS.has(key))
  if (!isQuestion || !isPlainEnd || isAboutMarks || BEFORE_FINAL_NAMES.has(before.key)) return items
  return items.slice(end).some(({ isSpaced }) => isSpaced) ? items : items.slice(0, end + 1)
}

/** Removes the courtesy in `could you please describe`. */
function removePlease(items: readonly Token[]): readonly Token[] {
  return items.filter((item, index) => {
    if (item.key !== 'please' || item.raw !== 'please' || items.length === 1) return true
    // `would you please describe` is a request, unlike `would you describe`.
    return (
      items[index - 1]?.key !== 'you' || items[index - 2]?.key === 'would' || NEGATIONS.has(items[index - 2]?.key ?? '')
    )
  })
}
