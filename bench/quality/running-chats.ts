import { RESPONSE_QUESTIONS } from './answer-questions.ts'
import type { ChatMessage } from './data.ts'
import type { LocomoChat, Session } from './locomo.ts'
import type { Turn } from './replay.ts'
import { dialogsOf } from './long-chat.ts'

export interface Question {
  readonly text: string
  /** Texts of earlier messages that the response needs. */
  readonly evidence: readonly string[]
  readonly response: string
}

/** A chat that is continued by questions about its earlier turns, one per turn. */
export interface RunningChat {
  readonly id: string
  readonly messages: readonly ChatMessage[]
  readonly questions: readonly Question[]
}

/**
 * Returns chats about many topics: the dialogs of mtragun and, if given, conversations of LoCoMo, merged session by session.
 * `half` selects the dialogs and conversations, so that both halves have different sources. The more parts they are divided
 * into, the shorter the chats.
 */
export function mixedChats(root: string, { half, parts, locomo, perChat = 8 }: MixedOptions): readonly RunningChat[] {
  const dialogs = dialogsOf(root).filter((_, at) => at % 2 === half)
  const chats = locomo.filter((_, at) => Math.floor((2 * at) / locomo.length) === half)
  return Array.from({ length: parts }, (_, part) => {
    const isIn = (__: unknown, at: number): boolean => at % parts === part
    return mixedChat(`mixed-${half}-${part}`, dialogs.filter(isIn), chats.filter(isIn), perChat)
  })
}

export interface MixedOptions {
  readonly half: 0 | 1
  readonly parts: number
  readonly locomo: readonly LocomoChat[]
  /** Number of questions about each conversation of LoCoMo. @default 8 */
  readonly perChat?: number
}

function mixedChat(
  id: string,
  dialogs: ReturnType<typeof dialogsOf>,
  chats: readonly LocomoChat[],
  perChat: number,
): RunningChat {
  const sessions: Session[][] = [
    dialogs.map(([, messages]) => ({ messages })),
    ...chats.map((chat) => [...chat.sessions]),
  ]
  const responses = RESPONSE_QUESTIONS.flatMap(({ dialog, at, question }): Question[] => {
    const found = dialogs.find(([name, messages]) => name.startsWith(dialog) && messages.length > at + 1)
    const response = found?.[1][at + 1]?.content
    return response === undefined || response === null ? [] : [{ text: question, evidence: [response], response }]
  })
  const facts = chats.map(({ questions }) => everyNth(questions, Math.ceil(questions.length / perChat)))
  return {
    id,
    messages: interleave(sessions).flatMap(({ messages }) => messages),
    questions: interleave([responses, ...facts]),
  }
}

function everyNth<Item>(items: readonly Item[], step: number): Item[] {
  return items.filter((_, at) => at % step === 0)
}

/** Merges lists so that each is spread evenly over the result. */
export function interleave<Item>(lists: readonly (readonly Item[])[]): Item[] {
  const placed = lists.flatMap((list, which) =>
    list.map((item, at) => ({ item, which, place: (at + 0.5) / list.length })),
  )
  return placed.toSorted((a, b) => a.place - b.place || a.which - b.which).map(({ item }) => item)
}

const SYSTEM: ChatMessage = { role: 'system', content: 'You answer from the conversation above.' }

/** Returns the requests of a chat: the last `lead` ones before the questions, and one per question. */
export function* requestsOf(
  { messages, questions }: RunningChat,
  lead: number = Number.POSITIVE_INFINITY,
): Generator<Turn> {
  const responses = [...messages.keys()].filter((at) => messages[at]?.role === 'assistant' && at > 0)
  for (const at of responses.slice(Math.max(0, responses.length - lead)))
    yield { messages: [SYSTEM, ...messages.slice(0, at)] }
  const past = [SYSTEM, ...messages]
  for (const { text, evidence, response } of questions) {
    past.push({ role: 'user', content: text })
    yield { messages: [...past], evidence }
    past.push({ role: 'assistant', content: response })
  }
}
