import { textOfMessage, textOfPart } from '../core/prompt.ts'
import type { Query } from './keywords.ts'
import { termsOf } from './terms.ts'
import { holdsUserWords, type Segment, type SplitConversation } from './conversation.ts'

/** A longer message is a document, not a question. */
const MAX_QUESTION_TERMS = 40
/** A question with at most this many terms of its own is a follow-up: "and the second one?". */
const MAX_FOLLOW_UP_TERMS = 1
/** A question with more terms than this needs no earlier turn. */
const MAX_SHORT_TERMS = 7
/** Words that refer to earlier messages. */
const POINTS_BACK =
  /\b(?:it|its|they|them|their|theirs|that|this|these|those|he|him|his|she|her|hers|there|then|one|ones|same|former|latter|above|previous|earlier|first|second|third|last|other|another|again|else|too|instead)\b/i
/** A capital inside a sentence: the question names what it is about. */
const HOLDS_NAME = /[\p{Ll}\d,;:] +\p{Lu}|["“`]/u
const EARLIER_QUESTION_WEIGHT = 0.4
const EARLIER_ANSWER_WEIGHT = 0.15
/** A short question without references may still be about an earlier question. */
const EARLIER_TOPIC_WEIGHT = 0.3
/** How many steps of an agent's loop show what it is about to do. */
const LOOP_STEPS = 5
/** Further occurrences of a term do not raise its weight. */
const MAX_WEIGHT = 2
/** Weight of terms from the small model. They are added to the terms of the user. */
const GUESS_WEIGHT = 0.4
const MAX_READ_LENGTH = 8000

/**
 * Returns what the coming answer is about: the last user message; for a follow-up also the question before it and its
 * answer; within an agent's loop what the agent said and called last. `more` are terms that a small model added.
 */
export function queryOf(turns: SplitConversation, more: readonly string[] = []): Query {
  const query = new Map<number, number>()
  const add = (text: string, weight: number): void => {
    for (const term of termsOf(text.slice(0, MAX_READ_LENGTH))) {
      query.set(term, Math.min(MAX_WEIGHT, (query.get(term) ?? 0) + weight))
    }
  }
  /** Adds each term once, below the weight of the question's own terms. */
  const addOnce = (text: string, weight: number): void => {
    for (const term of new Set(termsOf(text.slice(0, MAX_READ_LENGTH)))) {
      if (!query.has(term)) query.set(term, weight)
    }
  }
  const [asking, ...steps] = turns.live
  const question = asking === undefined ? '' : textOfSegment(asking)
  add(question, 1)
  const isShort = steps.length === 0 && query.size <= MAX_SHORT_TERMS
  const earlier = isShort ? earlierQuestion(turns.old) : undefined
  if (earlier !== undefined) {
    const pointsBack = isFollowUp(question, query.size)
    addOnce(textOfSegment(earlier.question), pointsBack ? EARLIER_QUESTION_WEIGHT : EARLIER_TOPIC_WEIGHT)
    if (pointsBack) addOnce(textOfSegment(earlier.answer), EARLIER_ANSWER_WEIGHT)
  }
  for (const step of steps.slice(-LOOP_STEPS)) add(doingsOf(step), 1)
  for (const text of more) add(text, GUESS_WEIGHT)
  return query
}

/** Returns true for a question that depends on the question before it. */
function isFollowUp(question: string, terms: number): boolean {
  if (terms <= MAX_FOLLOW_UP_TERMS) return true
  return POINTS_BACK.test(question) && !HOLDS_NAME.test(question)
}

function textOfSegment(segment: Segment): string {
  return segment.messages.map(textOfMessage).join('\n')
}

/** Returns the text and tool calls of an agent, without tool results. */
function doingsOf(segment: Segment): string {
  const parts = segment.messages.flatMap((message) => message.parts)
  return parts
    .filter((part) => part.type === 'text' || part.type === 'tool-call')
    .map(textOfPart)
    .join('\n')
}

function earlierQuestion(
  old: readonly Segment[],
): { readonly question: Segment; readonly answer: Segment } | undefined {
  const at = old.findLastIndex((segment, index) => segment.kind === 'user' && old[index + 1]?.kind === 'assistant')
  const question = old[at]
  const answer = old[at + 1]
  if (question === undefined || answer === undefined) return undefined
  return new Set(termsOf(textOfSegment(question).slice(0, MAX_READ_LENGTH))).size <= MAX_QUESTION_TERMS
    ? { question, answer }
    : undefined
}

const SAID =
  'said|say|told|tell|mention(?:ed)?|recommend(?:ed)?|suggest(?:ed)?|advise[ds]?|propose[ds]?|explain(?:ed)?|describe[ds]?|list(?:ed)?|named?|g[ai]ve(?:n)?|warn(?:ed)?|answer(?:ed)?|compared?|point(?:ed)? out|la(?:y|id) out|provided?|shared?|wr[io]te|came? up with|walk(?:ed)? me'
/** "What did you recommend …", "you once told me …", "remind me of the steps you listed", "your advice on …". */
const ASKS_FOR_ANSWER = new RegExp(
  String.raw`\b(?:did|do|had|have|that|what|which|how|as|once|when|where|why|and|said) you(?:['’]ve|['’]d)?(?: \w+){0,2} (?:${SAID})\b|\bremind me\b[^.?!]*\byou(?: \w+){0,2} (?:${SAID})\b|^\W*you(?: \w+){0,2} (?:${SAID})\b|\byour (?:\w+ )?(?:advice|answers?|recommendations?|suggestions?|explanations?|tips?|list|words)\b|\baccording to you\b`,
  'i',
)
/** A longer message is a document that contains such words by chance. */
const MAX_QUESTION_LENGTH = 1500

/** Returns true if the last user message asks about an earlier answer of the assistant, often in other words. */
export function asksForAnswer({ live }: Pick<SplitConversation, 'live'>): boolean {
  const [asking, ...steps] = live
  if (asking === undefined || steps.length > 0) return false
  const question = asking.messages.map(textOfMessage).join('\n')
  return question.length <= MAX_QUESTION_LENGTH && ASKS_FOR_ANSWER.test(question)
}

/** Patterns of standing instructions. Rankings miss them, because they share no words with the question. */
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

/** A longer message is a document that contains "always" by chance. */
const MAX_ORDER_LENGTH = 1500

/** Returns true for a user message that may bind later turns. */
export function holdsStandingInstruction(segment: Segment): boolean {
  if (segment.kind !== 'user' || !holdsUserWords(segment)) return false
  const text = segment.messages.map(textOfMessage).join('\n')
  return text.length <= MAX_ORDER_LENGTH && STANDING_INSTRUCTION.test(text)
}
