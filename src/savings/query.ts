import { textOfMessage, textOfPart } from '../core/prompt.ts'
import type { Query } from './keywords.ts'
import { termsOf } from './terms.ts'
import type { Turns, Unit } from './turns.ts'

/** What is longer was a document, not a question. */
const LONGEST_QUESTION = 40
/** A question with at most this many terms of its own is a follow-up: "and the second one?". */
const MAX_FOLLOW_UP_TERMS = 1
/** A question with more terms than this needs no earlier turn. */
const MAX_SHORT_TERMS = 7
/** Words that point back to what was said before. */
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
/** A term that occurs often is not more wanted than one that occurs twice. */
const MAX_WEIGHT = 2
/** Guesses of a small model are added to the words of the user, never put in their place. */
const GUESS_WEIGHT = 0.4
const LONGEST_READ = 8000

/**
 * Returns what the coming answer is about: the last user message; for a follow-up also the question before it and its
 * answer; within an agent's loop what the agent said and called last. `more` are terms that a small model added.
 */
export function queryOf(turns: Turns, more: readonly string[] = []): Query {
  const query = new Map<number, number>()
  const add = (text: string, weight: number): void => {
    for (const term of termsOf(text.slice(0, LONGEST_READ))) {
      query.set(term, Math.min(MAX_WEIGHT, (query.get(term) ?? 0) + weight))
    }
  }
  /** Each term once, and never above the question's own words. */
  const addOnce = (text: string, weight: number): void => {
    for (const term of new Set(termsOf(text.slice(0, LONGEST_READ)))) {
      if (!query.has(term)) query.set(term, weight)
    }
  }
  const [asking, ...steps] = turns.live
  const question = asking === undefined ? '' : textOfUnit(asking)
  add(question, 1)
  const isShort = steps.length === 0 && query.size <= MAX_SHORT_TERMS
  const earlier = isShort ? earlierQuestion(turns.old) : undefined
  if (earlier !== undefined) {
    const pointsBack = isFollowUp(question, query.size)
    addOnce(textOfUnit(earlier.question), pointsBack ? EARLIER_QUESTION_WEIGHT : EARLIER_TOPIC_WEIGHT)
    if (pointsBack) addOnce(textOfUnit(earlier.answer), EARLIER_ANSWER_WEIGHT)
  }
  for (const step of steps.slice(-LOOP_STEPS)) add(doingsOf(step), 1)
  for (const text of more) add(text, GUESS_WEIGHT)
  return query
}

/** True for a question that cannot be understood without the one before it. */
function isFollowUp(question: string, terms: number): boolean {
  if (terms <= MAX_FOLLOW_UP_TERMS) return true
  return POINTS_BACK.test(question) && !HOLDS_NAME.test(question)
}

function textOfUnit(unit: Unit): string {
  return unit.messages.map(textOfMessage).join('\n')
}

/** What an agent said and called, without what came back. */
function doingsOf(unit: Unit): string {
  const parts = unit.messages.flatMap((message) => message.parts)
  return parts
    .filter((part) => part.type === 'text' || part.type === 'tool-call')
    .map(textOfPart)
    .join('\n')
}

function earlierQuestion(old: readonly Unit[]): { readonly question: Unit; readonly answer: Unit } | undefined {
  const at = old.findLastIndex((unit, index) => unit.kind === 'user' && old[index + 1]?.kind === 'assistant')
  const question = old[at]
  const answer = old[at + 1]
  if (question === undefined || answer === undefined) return undefined
  return new Set(termsOf(textOfUnit(question).slice(0, LONGEST_READ))).size <= LONGEST_QUESTION
    ? { question, answer }
    : undefined
}
