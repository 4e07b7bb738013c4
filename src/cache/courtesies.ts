import {
  ABOUT_COURTESY,
  CLAUSE_OPENING,
  ENDING,
  HOW_TO,
  OPENINGS,
  PLEA,
  QUESTION_WORDS,
  SUBJECT_OPENINGS,
} from './english.ts'
import { asWords, isPlainWord, type Token } from './tokens.ts'

/** The words joined by blanks, everything that is no word as a sign, so that patterns can be matched on them. */
function lineOf(items: readonly Token[]): string {
  return items.map((item) => (item.kind === 'exact' ? '\u0001' : item.kind === 'number' ? '0' : item.key)).join(' ')
}

function countIn(text: string): number {
  return text.split(' ').filter((word) => word !== '').length
}

/** How much of a text's head and tail is looked at for courtesies, in items. */
const HEAD = 40

/** The text without greetings, pleas, thanks and frames such as `can you tell me`, and without its last sign. */
export function withoutCourtesies(tokens: readonly Token[]): readonly Token[] {
  let items = tokens
  let clause = false
  for (let found = true; found;) {
    found = false
    const line = lineOf(items.slice(0, HEAD))
    for (const pattern of OPENINGS) {
      const opening = pattern.exec(line)?.[0]
      if (opening === undefined) continue
      items = items.slice(countIn(opening))
      clause = CLAUSE_OPENING.test(opening)
      found = true
      break
    }
  }
  const ended = withoutEnd(withoutEnding(items))
  return foldHowTo((clause ? asQuestion(ended) : ended).filter((item) => item.key !== ',' || item.kind !== 'symbol'))
}

function withoutEnding(items: readonly Token[]): readonly Token[] {
  if (items.some((item) => ABOUT_COURTESY.has(item.key))) return items
  const line = lineOf(items.slice(-HEAD))
  const plea = items.length <= HEAD ? PLEA.exec(line)?.[0] : undefined
  const ending = ENDING.exec(line)?.[0] ?? plea
  return ending === undefined ? items : items.slice(0, items.length - countIn(ending))
}

/** Without the signs that end the last sentence. */
export function withoutEnd(items: readonly Token[]): readonly Token[] {
  const last = items.findLastIndex((item) => item.kind !== 'stop')
  return last < 0 ? items : items.slice(0, last + 1)
}

/** `what the price is` as `what is the price`, `why the sky is blue` as `why is the sky blue`. */
function asQuestion(items: readonly Token[]): readonly Token[] {
  const [first, second] = items
  const verb = items.find(isForm)
  if (first === undefined || second === undefined || verb === undefined) return items
  if (items.some((item) => item.kind === 'stop') || items.filter(isForm).length > 1) return items
  const hasSubject = SUBJECT_OPENINGS.has(second.key) || !isPlainWord(second) || verb === items.at(-1)
  if (!QUESTION_WORDS.has(first.key) || !hasSubject) return items
  return [first, verb, ...items.slice(1).filter((item) => item !== verb)]
}

function isForm(item: Token): boolean {
  return item.key === 'is' || item.key === 'are' || item.key === 'was' || item.key === 'were'
}

function foldHowTo(items: readonly Token[]): readonly Token[] {
  const found = HOW_TO.exec(lineOf(items))
  if (found === null) return items
  const start = countIn(lineOf(items).slice(0, found.index))
  const how = items[start]
  if (how === undefined) return items
  return [...items.slice(0, start), ...asWords(how, ['how', 'to']), ...items.slice(start + countIn(found[0]))]
}
