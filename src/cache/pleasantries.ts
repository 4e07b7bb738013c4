import { QUESTION_WORDS, words } from './english.ts'
import { countWords, lineOf, reword } from './rewordings.ts'
import { toWordTokens, isPlainWord, type Token } from './tokenize.ts'

const QUESTION_WORD = '(?:what|who|whom|whose|when|where|why|how|which)'
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
/**
 * Beginnings of indirect questions, such as `how many` and `how I can`. `do you know how to swim` is not one of them.
 */
const INDIRECT_QUESTION =
  '(?:(?:what|who|when|where|why|which)|how (?:many|much|long|far|often|old|i can|i could|can i|could i|do i))'

/** Pleasantries at the beginning of a text, matched against its words joined by spaces. One may follow another. */
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

/** Openings that are followed by a question in the word order of a clause: `tell me what the price is`. */
const CLAUSE_OPENING = new RegExp(
  `(?:${TELL}|telling me|explaining|letting me know|know|ask|see|understand|out|learn|wonder|wondering|curious|about|idea)(?: please)?(?: to me)? $`,
)

/** Words that begin the subject of such a clause. In `what problems were found` the subject begins with `what`. */
const SUBJECT_OPENINGS = words('the a an my your his her its our their this that these those i you he she it we they')

/** Thanks and `please` at the end of a text, after a punctuation mark, unlike in `how do you say thank you`. */
const ENDING =
  /(?<=\S)(?: [.,!?])+(?: (?:many )?(?:please|thanks|thank you|cheers|much appreciated|if possible|if you can|if you could|if you do not mind)(?: (?:so|very) much| a lot| in advance)*)(?: [.,!?])*$/

/**
 * `please` at the end of a request, which needs no punctuation. At the end of a question, `please` may be the object.
 */
const FINAL_PLEASE = new RegExp(
  `(?<=^(?:${MODAL} you )?${REQUEST} .*) please(?: [.!?])*$|(?<=^${QUESTION_WORD} .* (?!(?:use|used|to|and|or|with|than|like|the|a|of|not|you|i|we|they|he|she|it|as|do|does|can|will|would) )\\S+) please(?: [.!?])*$`,
)

const FOR_ME = /(?<=^(?:write|draft|summarize|create|generate|compose|list) .*) for me$/

/** `write me a poem`, which means `write a poem`. */
const REQUEST_ME = /^(?:write|draft|create|generate|compose|find|suggest|recommend) (?=me (?:a|an|some|0) )/

/** A language, a place or a time before a question: `in Python, how do I sort a list`. */
const FRONTED = new RegExp(`^(?:in|using|with) \\S+(?: \\S+)? , (?=${QUESTION_WORD} )`)

/**
 * Words that introduce a clause. If the rest of the text contains one, the leading phrase is not moved to the end, where
 * it would modify the clause.
 */
const CLAUSE_WORDS = words(
  'that who which say says said think thinks thought believe know claim because if when while before after until and or but',
)

/** Words that mark a text that may be about a pleasantry. */
const ABOUT_PLEASANTRIES = words(
  ': say says said saying reply replies respond responds response answer answers message email letter',
)

/** Forms of `how to`: `how do I`, `how can I`, `how I can`, `how does one`. `how should I` asks for advice. */
const HOW_TO = /\bhow (?:(?:can|do|could|would) (?:i|one)|(?:i|one) (?:can|could)|does one)(?= (?!not\b)[a-z])/

/** Forms of `how to` in the word order of a clause: `tell me how I reset it`. */
const HOW_I = /^how i(?= (?!am\b|was\b|not\b|should\b|would\b|will\b|did\b|have\b|had\b|must\b|might\b|may\b)[a-z])/

const SEARCHED_TOKENS = 40

/**
 * Removes greetings, `please`, thanks, introductions such as `can you tell me`, and the final punctuation. Rewrites
 * equivalent forms of a question to one form.
 */
export function removePleasantries(tokens: readonly Token[]): readonly Token[] {
  let items = tokens
  let isClause = false
  for (;;) {
    const opening = openingOf(lineOf(items.slice(0, SEARCHED_TOKENS)))
    if (opening === undefined) break
    items = items.slice(countWords(opening))
    isClause = CLAUSE_OPENING.test(opening)
  }
  const withoutEnding = removeForMe(removeFinalPunctuation(removeEnding(items)))
  const question = isClause ? toDirectQuestion(withoutEnding) : moveFrontedPhrase(withoutEnding)
  const withoutCommas = question.filter((item) => item.key !== ',' || item.kind !== 'symbol')
  const form = normalizeHowTo(withoutCommas, isClause ? [HOW_TO, HOW_I] : [HOW_TO])
  const isOneSentence = form.length <= SEARCHED_TOKENS && !form.some((item) => item.kind === 'stop')
  return isOneSentence ? reword(form) : form
}

function removeForMe(items: readonly Token[]): readonly Token[] {
  if (items.length > SEARCHED_TOKENS || !items.some((item) => item.key === 'me')) return items
  const line = lineOf(items)
  const rest = FOR_ME.test(line) ? items.slice(0, -2) : items
  return REQUEST_ME.test(line) ? rest.filter((_, index) => index !== 1) : rest
}

function moveFrontedPhrase(items: readonly Token[]): readonly Token[] {
  const first = items[0]?.key
  if (items.length > SEARCHED_TOKENS || (first !== 'in' && first !== 'using' && first !== 'with')) return items
  const phrase = FRONTED.exec(lineOf(items))?.[0]
  if (phrase === undefined) return items
  const length = countWords(phrase)
  const rest = items.slice(length)
  if (rest.some((item, index) => item.kind === 'stop' || (index > 0 && CLAUSE_WORDS.has(item.key)))) return items
  return [...rest, ...items.slice(0, length - 1)]
}

function openingOf(line: string): string | undefined {
  for (const pattern of OPENINGS) {
    const opening = pattern.exec(line)?.[0]
    if (opening !== undefined) return opening
  }
  return undefined
}

function removeEnding(items: readonly Token[]): readonly Token[] {
  const line = lineOf(items.slice(-SEARCHED_TOKENS))
  if (!/please|thank|cheers/.test(line)) return items
  if (items.some((item) => ABOUT_PLEASANTRIES.has(item.key))) return items
  const finalPlease = items.length <= SEARCHED_TOKENS ? FINAL_PLEASE.exec(line)?.[0] : undefined
  const ending = ENDING.exec(line)?.[0] ?? finalPlease
  return ending === undefined ? items : items.slice(0, items.length - countWords(ending))
}

export function removeFinalPunctuation(items: readonly Token[]): readonly Token[] {
  const last = items.findLastIndex((item) => item.kind !== 'stop')
  if (last < 0 || last === items.length - 1) return items
  return items.slice(0, isFactorial(items[last], items[last + 1]) ? last + 2 : last + 1)
}

/** Returns true for an exclamation mark after a number, a letter or a symbol, as in 5! and (n - 1)! */
function isFactorial(operand: Token | undefined, mark: Token | undefined): boolean {
  return mark?.raw === '!' && !(operand?.kind === 'word' && operand.key.length > 1)
}

/**
 * Converts an indirect question to a direct one: `what is the price` for `what the price is`, `where can I pay` for
 * `where I can pay`, `why do cats purr` for `why cats purr`.
 */
function toDirectQuestion(items: readonly Token[]): readonly Token[] {
  const [first, second, third] = items
  if (first === undefined || second === undefined || !QUESTION_WORDS.has(first.key)) return items
  if (items.some((item) => item.kind === 'stop')) return items
  if (third !== undefined && PRONOUNS.has(second.key) && MODALS.has(third.key)) {
    return [first, third, second, ...items.slice(3)]
  }
  const verb = items.find(isFormOfBe)
  if (verb === undefined) return insertDo(items)
  const hasSubject = SUBJECT_OPENINGS.has(second.key) || !isPlainWord(second) || verb === items.at(-1)
  if (!hasSubject || items.filter(isFormOfBe).length > 1) return items
  return [first, verb, ...items.slice(1).filter((item) => item !== verb)]
}

const PRONOUNS: ReadonlySet<string> = new Set(['i', 'you', 'he', 'she', 'it', 'we', 'they', 'one'])
const MODALS: ReadonlySet<string> = new Set(['can', 'could', 'should', 'will', 'would', 'must', 'may', 'might'])
const AUXILIARIES: ReadonlySet<string> = new Set([
  ...MODALS,
  'do',
  'does',
  'did',
  'have',
  'has',
  'had',
  'not',
  'to',
  'be',
])
/** Excludes `who` and `what`, which may be the subject of the clause. Their questions need no `do`. */
const ADVERBS: ReadonlySet<string> = new Set(['why', 'where', 'when'])

function insertDo(items: readonly Token[]): readonly Token[] {
  const [first] = items
  if (first === undefined || !ADVERBS.has(first.key) || items.some((item) => AUXILIARIES.has(item.key))) return items
  return [...toWordTokens(first, [first.key, 'do']), ...items.slice(1)]
}

function isFormOfBe(item: Token): boolean {
  return item.key === 'is' || item.key === 'are' || item.key === 'was' || item.key === 'were'
}

function normalizeHowTo(items: readonly Token[], patterns: readonly RegExp[]): readonly Token[] {
  if (!items.some((item) => item.key === 'how')) return items
  const line = lineOf(items)
  const matched = patterns.map((pattern) => pattern.exec(line)).find((match) => match !== null)
  if (!matched) return items
  const start = countWords(line.slice(0, matched.index))
  const how = items[start]
  if (how === undefined) return items
  return [...items.slice(0, start), ...toWordTokens(how, ['how', 'to']), ...items.slice(start + countWords(matched[0]))]
}
