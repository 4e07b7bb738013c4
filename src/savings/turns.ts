import { holdsOnlyToolResults, lastUserIndex, type Message } from '../core/prompt.ts'

/**
 * Messages that are kept or left out together: a word of the user, an answer, or an answer with all its tool calls and their results.
 * A unit is kept, excerpted or dropped whole, so that no call loses its result.
 */
export interface Unit {
  readonly kind: 'user' | 'assistant' | 'exchange'
  readonly messages: readonly Message[]
  /** The index of each of its messages among the prompt's messages. */
  readonly places: readonly number[]
}

/** A prompt's messages, cut where they may be cut. System messages are in no unit: they always stay. */
export interface Turns {
  /** Everything before the live turn, oldest first. */
  readonly old: readonly Unit[]
  /** The last user message and all that came after it. The first unit holds that message. */
  readonly live: readonly Unit[]
}

/**
 * Cuts a conversation into units. The live turn begins with the last user message, or, when that message also answers
 * tool calls, with the message that made them. Without any user message the last unit is the live turn.
 */
export function splitTurns(messages: readonly Message[]): Turns {
  const units = unitsOf(messages)
  const asked = lastUserIndex(messages)
  const live = asked === -1 ? units.length - 1 : units.findLastIndex((unit) => (unit.places[0] ?? 0) <= asked)
  return { old: units.slice(0, Math.max(0, live)), live: units.slice(Math.max(0, live)) }
}

function unitsOf(messages: readonly Message[]): Unit[] {
  const units: { kind: Unit['kind']; messages: Message[]; places: number[] }[] = []
  for (const [place, message] of messages.entries()) {
    if (message.role === 'system') continue
    const last = units.at(-1)
    if (last?.kind === 'exchange' && answersCalls(message)) {
      last.messages.push(message)
      last.places.push(place)
    } else units.push({ kind: kindOf(message), messages: [message], places: [place] })
  }
  return units
}

function answersCalls(message: Message): boolean {
  return message.role !== 'assistant' && message.parts.some((part) => part.type === 'tool-result')
}

function kindOf(message: Message): Unit['kind'] {
  if (message.parts.some((part) => part.type === 'tool-call')) return 'exchange'
  if (message.role === 'user' && !holdsOnlyToolResults(message)) return 'user'
  return message.role === 'assistant' ? 'assistant' : 'exchange'
}

/** True when the words of a person stand in the unit. */
export function holdsUserWords(unit: Unit): boolean {
  return unit.messages.some((message) => message.role === 'user' && !holdsOnlyToolResults(message))
}
