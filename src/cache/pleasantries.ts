import {
  ABOUT_PLEASANTRIES,
  CLAUSE_OPENING,
  ENDING,
  FOR_ME,
  FRONTED,
  HAS_CLAUSES,
  HOW_I,
  HOW_TO,
  OPENINGS,
  ORDER_ME,
  PLEA,
  QUESTION_WORDS,
  SUBJECT_OPENINGS,
} from './english.ts'
import { reworded } from './rewordings.ts'
import { asWords, isPlainWord, type Token } from './tokens.ts'

/** Number of tokens at the head and at the end of a text that are searched for pleasantries. */
const SEARCHED_TOKENS = 40

/** Removes greetings, pleas, thanks, frames such as `can you tell me`, and the final punctuation. */
export function withoutPleasantries(tokens: readonly Token[]): readonly Token[] {
  let items = tokens
  let isClause = false
  for (;;) {
    const opening = openingOf(lineOf(items.slice(0, SEARCHED_TOKENS)))
    if (opening === undefined) break
    items = items.slice(countWords(opening))
    isClause = CLAUSE_OPENING.test(opening)
  }
  const ended = withoutBeneficiary(withoutEnd(withoutEnding(items)))
  const question = isClause ? asQuestion(ended) : unfronted(ended)
  const bare = question.filter((item) => item.key !== ',' || item.kind !== 'symbol')
  const form = normalizeHowTo(bare, isClause ? [HOW_TO, HOW_I] : [HOW_TO])
  const isOneSentence = form.length <= SEARCHED_TOKENS && !form.some((item) => item.kind === 'stop')
  return isOneSentence ? reworded(form, lineOf) : form
}

/** Removes `me` from `write me a poem`, and `for me` at the end of an order. */
function withoutBeneficiary(items: readonly Token[]): readonly Token[] {
  if (items.length > SEARCHED_TOKENS || !items.some((item) => item.key === 'me')) return items
  const line = lineOf(items)
  const kept = FOR_ME.test(line) ? items.slice(0, -2) : items
  return ORDER_ME.test(line) ? kept.filter((_, index) => index !== 1) : kept
}

/** Moves a phrase before a question to its end: `in Python, how do I sort a list` asks `how do I sort a list in Python`. */
function unfronted(items: readonly Token[]): readonly Token[] {
  const first = items[0]?.key
  if (items.length > SEARCHED_TOKENS || (first !== 'in' && first !== 'using' && first !== 'with')) return items
  const phrase = FRONTED.exec(lineOf(items))?.[0]
  if (phrase === undefined) return items
  const length = countWords(phrase)
  const rest = items.slice(length)
  if (rest.some((item, index) => item.kind === 'stop' || (index > 0 && HAS_CLAUSES.has(item.key)))) return items
  return [...rest, ...items.slice(0, length - 1)]
}

function openingOf(line: string): string | undefined {
  for (const pattern of OPENINGS) {
    const opening = pattern.exec(line)?.[0]
    if (opening !== undefined) return opening
  }
  return undefined
}

/** Returns the words joined by blanks, and a sign for each other token, so that patterns can be matched on them. */
function lineOf(items: readonly Token[]): string {
  let line = ''
  for (const item of items) {
    const word = item.kind === 'exact' ? '\u0001' : item.kind === 'number' ? '0' : item.key
    line = line === '' ? word : `${line} ${word}`
  }
  return line
}

function countWords(text: string): number {
  return text.split(' ').filter((word) => word !== '').length
}

function withoutEnding(items: readonly Token[]): readonly Token[] {
  const line = lineOf(items.slice(-SEARCHED_TOKENS))
  if (!/please|thank|cheers/.test(line)) return items
  if (items.some((item) => ABOUT_PLEASANTRIES.has(item.key))) return items
  const plea = items.length <= SEARCHED_TOKENS ? PLEA.exec(line)?.[0] : undefined
  const ending = ENDING.exec(line)?.[0] ?? plea
  return ending === undefined ? items : items.slice(0, items.length - countWords(ending))
}

/** Removes the punctuation that ends the last sentence. */
export function withoutEnd(items: readonly Token[]): readonly Token[] {
  const last = items.findLastIndex((item) => item.kind !== 'stop')
  return last < 0 || last === items.length - 1 ? items : items.slice(0, last + 1)
}

/**
 * Returns the question that a clause asks: `what is the price` for `what the price is`, `where can I pay` for `where I
 * can pay`, `why do cats purr` for `why cats purr`.
 */
function asQuestion(items: readonly Token[]): readonly Token[] {
  const [first, second, third] = items
  if (first === undefined || second === undefined || !QUESTION_WORDS.has(first.key)) return items
  if (items.some((item) => item.kind === 'stop')) return items
  if (third !== undefined && PRONOUNS.has(second.key) && MODALS.has(third.key)) {
    return [first, third, second, ...items.slice(3)]
  }
  const verb = items.find(isForm)
  if (verb === undefined) return withDo(items)
  const hasSubject = SUBJECT_OPENINGS.has(second.key) || !isPlainWord(second) || verb === items.at(-1)
  if (!hasSubject || items.filter(isForm).length > 1) return items
  return [first, verb, ...items.slice(1).filter((item) => item !== verb)]
}

const PRONOUNS: ReadonlySet<string> = new Set(['i', 'you', 'he', 'she', 'it', 'we', 'they', 'one'])
const MODALS: ReadonlySet<string> = new Set(['can', 'could', 'should', 'will', 'would', 'must', 'may', 'might'])
const HELPERS: ReadonlySet<string> = new Set([...MODALS, 'do', 'does', 'did', 'have', 'has', 'had', 'not', 'to', 'be'])
/** `who` and `what` may be the subject of the clause. */
const ADVERBS: ReadonlySet<string> = new Set(['why', 'where', 'when'])

function withDo(items: readonly Token[]): readonly Token[] {
  const [first] = items
  if (first === undefined || !ADVERBS.has(first.key) || items.some((item) => HELPERS.has(item.key))) return items
  return [...asWords(first, [first.key, 'do']), ...items.slice(1)]
}

function isForm(item: Token): boolean {
  return item.key === 'is' || item.key === 'are' || item.key === 'was' || item.key === 'were'
}

/** Returns `how to` for `how do I` and `how can I`. */
function normalizeHowTo(items: readonly Token[], patterns: readonly RegExp[]): readonly Token[] {
  if (!items.some((item) => item.key === 'how')) return items
  const line = lineOf(items)
  const found = patterns.map((pattern) => pattern.exec(line)).find((match) => match !== null)
  if (found === undefined || found === null) return items
  const start = countWords(line.slice(0, found.index))
  const how = items[start]
  if (how === undefined) return items
  return [...items.slice(0, start), ...asWords(how, ['how', 'to']), ...items.slice(start + countWords(found[0]))]
}
