import { RESPONSE_QUESTIONS } from './answer-questions.ts'
import { readCaseLines, type Case, type ChatMessage, type Conversation } from './data.ts'

const SYSTEM: ChatMessage = { role: 'system', content: 'You answer from the conversation above.' }

/** Questions about a whole topic, and the words that identify its user messages. */
const TOPICS: readonly (readonly [string, RegExp])[] = [
  ['Give me an overview of everything I asked about funds and the stock market.', /\b(?:etfs?|fund|stock|shares?)\b/i],
  ['Summarize all that we discussed about taxes.', /\btax/i],
  ['Sum up everything we talked about with loans and mortgages.', /\b(?:loan|mortgage)/i],
  ['List all the questions that I had about courts and the law.', /\b(?:court|legal|law|hearing)\b/i],
  ['Summarize everything I wanted to know about NASA and space.', /\b(?:nasa|space|moon|mission|planet)/i],
  ['What were all the health topics that came up in our chats?', /\b(?:health|clinic|medic|doctor|vaccin)/i],
]

/**
 * Returns cases with all dialogs of mtragun joined into one long chat of about 70k tokens, and questions that were written for
 * this project: about an earlier response, in other words, or about everything on a topic.
 */
export function longChatCases(root: string, kind: 'answers' | 'everything'): Case[] {
  const sorted = dialogsOf(root)
  const past = sorted.flatMap(([, messages]) => messages)
  const caseOf = (id: string, question: string, evidence: readonly string[]): Case => ({
    id,
    messages: [SYSTEM, ...past, { role: 'user', content: question }],
    evidence,
    needed: [],
  })
  if (kind === 'everything') {
    return TOPICS.map(([question, words], at) => {
      const evidence = past.flatMap(({ role, content }, place) =>
        role === 'user' && words.test(content ?? '') ? [content ?? '', past[place + 1]?.content ?? ''] : [],
      )
      return caseOf(`everything-${at}`, question, evidence)
    })
  }
  return RESPONSE_QUESTIONS.flatMap(({ dialog, at, question }) => {
    const found = sorted.find(([id, messages]) => id.startsWith(dialog) && messages.length > at + 1)
    const response = found?.[1][at + 1]?.content
    return response === undefined || response === null ? [] : [caseOf(`${dialog}-${at}`, question, [response])]
  })
}

/** Returns the dialogs sorted by id. The id is a hash, so that topics are mixed. */
export function dialogsOf(root: string): readonly (readonly [string, readonly ChatMessage[]])[] {
  const dialogs = new Map<string, readonly ChatMessage[]>()
  for (const { id, append } of readCaseLines(root, 'mtragun')) dialogs.set(id, append ?? [])
  return [...dialogs].toSorted(([a], [b]) => (a < b ? -1 : 1))
}

/** Returns `count` chats of about 60k tokens: the same dialogs, each chat starting with a different one. */
export function longChats(root: string, count: number): Conversation[] {
  const sorted = dialogsOf(root)
  return Array.from({ length: count }, (_, at) => {
    const from = Math.round((at * sorted.length) / count)
    const rotated = [...sorted.slice(from), ...sorted.slice(0, from)]
    return { id: `chat-${at}`, messages: rotated.flatMap(([, messages]) => messages) }
  })
}
