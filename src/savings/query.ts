import { textOfMessage, textOfPart } from '../core/prompt.ts'
import type { Query } from './keywords.ts'
import { termsOf } from './terms.ts'
import type { Turns, Unit } from './turns.ts'

/** A question of fewer different terms leans on the one before it ("and the second one?"). */
const SHORT_QUESTION = 8
/** What is longer was a document, not a question. */
const LONGEST_QUESTION = 40
const EARLIER_QUESTION_WEIGHT = 0.4
const EARLIER_ANSWER_WEIGHT = 0.2
/** How many steps of an agent's loop tell what it is about to do. */
const LOOP_STEPS = 5
/** A term that comes again and again is not more wanted than one that comes twice. */
const GREATEST_WEIGHT = 2
/** What a small model guessed is added to the words of the user, never put in their place. */
const GUESS_WEIGHT = 0.4
const LONGEST_READ = 8000

/**
 * What the coming answer is about: the last user message; when that is short, the answered question before it; within
 * an agent's loop, what the agent said and called last. `more` are terms that a small model added.
 */
export function queryOf(turns: Turns, more: readonly string[] = []): Query {
  const query = new Map<number, number>()
  const add = (text: string, weight: number): void => {
    for (const term of termsOf(text.slice(0, LONGEST_READ))) {
      query.set(term, Math.min(GREATEST_WEIGHT, (query.get(term) ?? 0) + weight))
    }
  }
  const [asking, ...steps] = turns.live
  if (asking !== undefined) add(textOfUnit(asking), 1)
  if (query.size < SHORT_QUESTION) {
    const earlier = earlierQuestion(turns.old)
    if (earlier !== undefined) {
      add(textOfUnit(earlier.question), EARLIER_QUESTION_WEIGHT)
      add(textOfUnit(earlier.answer), EARLIER_ANSWER_WEIGHT)
    }
  }
  for (const step of steps.slice(-LOOP_STEPS)) add(doingsOf(step), 1)
  for (const text of more) add(text, GUESS_WEIGHT)
  return query
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
