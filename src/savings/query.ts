import { textOfMessage, textOfPart } from '../core/prompt.ts'
import type { Query } from './keywords.ts'
import type { Segment, SplitConversation } from './conversation.ts'

/** Maximum number of distinct terms in an earlier question. A message with more terms counts as a document. */
const MAX_QUESTION_TERMS = 40
const MAX_FOLLOW_UP_TERMS = 1
/** Maximum number of terms in a short question. Only short questions are extended by the earlier question. */
const MAX_SHORT_TERMS = 7
const REFERENCE =
  /\b(?:it|its|they|them|their|theirs|that|this|these|those|he|him|his|she|her|hers|there|then|one|ones|same|former|latter|above|previous|earlier|first|second|third|last|other|another|again|else|too|instead)\b/i
/**
 * A name (a capital letter inside a sentence) or a quotation. A question that contains one can be understood without
 * the earlier question.
 */
const NAME_OR_QUOTATION = /[\p{Ll}\d,;:] +\p{Lu}|["“`]/u
const EARLIER_QUESTION_WEIGHT = 0.4
const EARLIER_ANSWER_WEIGHT = 0.15
const EARLIER_TOPIC_WEIGHT = 0.3
const MAX_STEPS = 5
const MAX_TERM_WEIGHT = 2
const SUGGESTED_TERM_WEIGHT = 0.4
const MAX_READ_LENGTH = 8000

/**
 * Returns the weighted terms of the last user message, of the exchange to which a follow-up refers, and of an agent's
 * last steps. `suggested` are terms from a small model.
 */
export function queryOf(turns: SplitConversation, suggested: readonly string[] = []): Query {
  const query = new Map<number, number>()
  const add = (text: string, weight: number): void => {
    for (const term of termsOf(text.slice(0, MAX_READ_LENGTH))) {
      query.set(term, Math.min(MAX_TERM_WEIGHT, (query.get(term) ?? 0) + weight))
    }
  }
  const addNew = (text: string, weight: number): void => {
    for (const term of new Set(termsOf(text.slice(0, MAX_READ_LENGTH)))) {
      if (!query.has(term)) query.set(term, weight)
    }
  }
  const [first, ...steps] = turns.live
  const question = first === undefined ? '' : textOfSegment(first)
  add(question, 1)
  const isShort = steps.length === 0 && query.size <= MAX_SHORT_TERMS
  const earlier = isShort ? earlierQuestion(turns.old) : undefined
  if (earlier !== undefined) {
    const needsEarlier = isFollowUp(question, query.size)
    addNew(textOfSegment(earlier.question), needsEarlier ? EARLIER_QUESTION_WEIGHT : EARLIER_TOPIC_WEIGHT)
    if (needsEarlier) addNew(textOfSegment(earlier.answer), EARLIER_ANSWER_WEIGHT)
  }
  for (const step of steps.slice(-MAX_STEPS)) add(textAndCallsOf(step), 1)
  for (const term of suggested) add(term, SUGGESTED_TERM_WEIGHT)
  return query
}

function isFollowUp(question: string, terms: number): boolean {
  if (terms <= MAX_FOLLOW_UP_TERMS) return true
  return REFERENCE.test(question) && !NAME_OR_QUOTATION.test(question)
}

function textOfSegment(segment: Segment): string {
  return segment.messages.map(textOfMessage).join('\n')
}

function textAndCallsOf(segment: Segment): string {
  const parts = segment.messages.flatMap((message) => message.parts)
  return parts
    .filter((part) => part.type === 'text' || part.type === 'tool-call')
    .map(textOfPart)
    .join('\n')
}

function earlierQuestion(
  old: readonly Segment[],
): { readonly question: Segment; readonly answer: Segment } | undefined {
  const questionIndex = old.findLastIndex(
    (segment, index) => segment.kind === 'user' && old[index + 1]?.kind === 'assistant',
  )
  const question = old[questionIndex]
  const answer = old[questionIndex + 1]
  if (question === undefined || answer === undefined) return undefined
  return new Set(termsOf(textOfSegment(question).slice(0, MAX_READ_LENGTH))).size <= MAX_QUESTION_TERMS
    ? { question, answer }
    : undefined
}

const STATED =
  'said|say|told|tell|mention(?:ed)?|recommend(?:ed)?|suggest(?:ed)?|advise[ds]?|propose[ds]?|explain(?:ed)?|describe[ds]?|list(?:ed)?|named?|g[ai]ve(?:n)?|warn(?:ed)?|answer(?:ed)?|compared?|point(?:ed)? out|la(?:y|id) out|provided?|shared?|wr[io]te|came? up with|walk(?:ed)? me'
/** Matches questions about an earlier answer: "What did you recommend …", "you once told me …", "your advice on …". */
const ASKS_FOR_ANSWER = new RegExp(
  String.raw`\b(?:did|do|had|have|that|what|which|how|as|once|when|where|why|and|said) you(?:['’]ve|['’]d)?(?: \w+){0,2} (?:${STATED})\b|\bremind me\b[^.?!]*\byou(?: \w+){0,2} (?:${STATED})\b|^\W*you(?: \w+){0,2} (?:${STATED})\b|\byour (?:\w+ )?(?:advice|answers?|recommendations?|suggestions?|explanations?|tips?|list|words)\b|\baccording to you\b`,
  'i',
)
/** Longer messages are documents, which may match `ASKS_FOR_ANSWER` or `STANDING_INSTRUCTION` by chance. */
const MAX_MATCHED_LENGTH = 1500

export function asksForAnswer({ live }: Pick<SplitConversation, 'live'>): boolean {
  const [first, ...steps] = live
  if (first === undefined || steps.length > 0) return false
  const question = textOfSegment(first)
  return question.length <= MAX_MATCHED_LENGTH && ASKS_FOR_ANSWER.test(question)
}

/**
 * Matches instructions for all later turns. A ranking would miss them, because they share no words with the question.
 */
const STANDING_INSTRUCTION: RegExp = new RegExp(
  [
    String.raw`\b(?:always|never|from now on|going forward|every time|each time|whenever|by default|keep in mind|be sure to)\b`,
    String.raw`\bremember (?:that|to|this|my|i|we)\b|\bdo(?:n['’]t| not) ever\b|\bno (?:more|longer)\b`,
    String.raw`\bi(?:['’]d)? (?:prefer|rather|hate|dislike|like (?:it|my|your|all|answers))\b|\bi(?:['’]m| am) (?:allergic|vegan|vegetarian)\b`,
    String.raw`\bi (?:want|need) (?:you to|all|every)\b|\bmy (?:name|pronouns|time ?zone|budget|deadline|preference)\b|\b(?:call|address) me\b`,
    String.raw`\b(?:must|should) (?:always|never|only)\b|\bonly (?:use|answer|reply|respond|write)\b|\buse only\b|\bstick to\b|\bavoid\b`,
    String.raw`\bplease (?:use|answer|reply|respond|write|keep|stick)\b|\b(?:answer|reply|respond|write) in\b`,
    String.raw`\bstop (?:using|doing|saying|adding)\b|\b(?:immer|niemals|ab jetzt|toujours|jamais|siempre|nunca)\b`,
    '从现在|以后|永远|总是|不要|今後|必ず|いつも',
  ].join('|'),
  'iu',
)

export function hasStandingInstruction(segment: Segment): boolean {
  const text = segment.kind === 'user' ? textOfSegment(segment) : ''
  return text.length <= MAX_MATCHED_LENGTH && STANDING_INSTRUCTION.test(text)
}

const STOP_WORDS: ReadonlySet<string> = new Set(
  (
    'a an the and or but nor so yet if then than that this these those it its i me my mine we us our ours you your yours he him his ' +
    'she her hers they them their theirs who whom whose which what when where why how is are was were be been being am do does did ' +
    'done doing have has had having will would shall should can could may might must not no yes of to in on at by for with from into ' +
    'onto over under about as up down out off there here all any some each every both few more most other such only own same too very ' +
    'just also again once ever never please tell let got get go going like want know think thing lot okay ok yeah oh um uh hmm well ' +
    'really one two need make say said mean much many because while during before after between through'
  ).split(' '),
)

const NONE = 0
const LETTER = 1
const DIGIT = 2
/** A character that may join two words into a compound. */
const JOINER = 3

const ASCII_CLASSES: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) => {
  const character = String.fromCharCode(code)
  if (/[A-Za-z_$]/.test(character)) return LETTER
  if (/\d/.test(character)) return DIGIT
  return /[-./:@'+]/.test(character) ? JOINER : NONE
})

/** Longer words are keys or encoded data. */
const MAX_WORD_LENGTH = 64

/**
 * Returns the terms of a text in order, with repeats: word stems, compounds and their parts, and pairs of CJK characters.
 * Terms are 30-bit hashes, which take a tenth of the memory of strings. A collision affects only the ranking.
 */
export function termsOf(text: string): number[] {
  const terms: number[] = []
  const add = (term: string): void => {
    terms.push(hashOf(term))
  }
  let position = 0
  while (position < text.length) {
    const start = skipToWord(text, position)
    position = endOfCompound(text, start)
    if (position > start) addCompound(text.slice(start, position), add)
  }
  return terms
}

function hashOf(term: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < term.length; index++) hash = Math.imul(hash ^ term.charCodeAt(index), 0x01000193)
  return (hash ^ (hash >>> 17)) & 0x3fffffff
}

function skipToWord(text: string, from: number): number {
  let position = from
  while (position < text.length && !isWordCharacter(text.charCodeAt(position))) position++
  return position
}

function endOfCompound(text: string, start: number): number {
  let position = start
  while (position < text.length) {
    const code = text.charCodeAt(position)
    const isJoiner = code < 128 && ASCII_CLASSES[code] === JOINER && isWordCharacter(text.charCodeAt(position + 1))
    if (!isJoiner && !isWordCharacter(code)) break
    position++
  }
  return position
}

function isWordCharacter(code: number): boolean {
  if (code < 128) return ASCII_CLASSES[code] === LETTER || ASCII_CLASSES[code] === DIGIT
  // Excludes punctuation, arrows, box drawings, and full-width punctuation and digits.
  return code >= 0xc0 && (code < 0x2000 || code > 0x303f) && (code < 0xff00 || code > 0xff20) && code !== 0xfffd
}

function addCompound(compound: string, add: (term: string) => void): void {
  if (isCjk(compound.charCodeAt(0))) return addPairs(compound, add)
  const lowerCase = compound.toLowerCase()
  if (lowerCase.length > MAX_WORD_LENGTH) return
  const parts = partsOf(compound)
  if (parts.length > 1) add(lowerCase)
  for (const part of parts) {
    const term = part.toLowerCase()
    if (!STOP_WORDS.has(term)) add(stemOf(term))
  }
}

/** Splits at joiners and underscores, and at capitals inside identifiers. */
function partsOf(compound: string): readonly string[] {
  if (/^[a-z]+$|^[A-Z][a-z]*$|^\d+$/.test(compound)) return [compound]
  return compound
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .split(/[-./:@'+_$ ]+/)
    .filter((part) => part.length > 1 || /[\d\u00c0-\uffff]/.test(part))
}

function isCjk(code: number): boolean {
  return code >= 0x3040 && code < 0xd800
}

function addPairs(text: string, add: (term: string) => void): void {
  for (let index = 0; index < text.length; index++) add(text.slice(index, index + 2))
}

export function stemOf(word: string): string {
  if (word.length < 4 || /\d/.test(word)) return word
  let stem = word
  if (/[^aeiou]ies$/.test(stem)) stem = `${stem.slice(0, -3)}y`
  else if (/(?:[sxz]|ch|sh)es$/.test(stem)) stem = stem.slice(0, -2)
  else if (/[^suai]s$/.test(stem)) stem = stem.slice(0, -1)
  const bare = stem.replace(/(?:ing|ed|ly)$/, '')
  if (bare !== stem && bare.length > 2 && /[aeiouy]/.test(bare)) stem = bare.replace(/([bdfgmnprt])\1$/, '$1')
  return stem.length > 3 ? stem.replace(/e$/, '') : stem
}
