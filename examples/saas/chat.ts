/** Conversations about the handbook, through the official client of the vendor. */
import { randomUUID } from 'node:crypto'
import OpenAI from 'openai'
import { readBill, type ResponseBill } from 'sluice'
import { gateway, MODELS } from './gateway.ts'
import type { Account } from './login.ts'

export interface Turn {
  readonly question: string
  readonly answer: string
  readonly bill: ResponseBill | undefined
}

export interface Conversation {
  /** The session of the gateway, with limits of its own. */
  readonly id: string
  readonly turns: Turn[]
}

export interface Refusal {
  readonly status: number
  readonly question: string
  readonly message: string
}

export const HANDBOOK = [
  'You answer questions about the handbook of Lockside, a boat rental on the canal.',
  'A rowing boat costs 18 dollars per hour, and a motor boat costs 45 dollars per hour.',
  'The deposit for a motor boat is 200 dollars, and it is paid back when the boat returns without damage.',
  'The lock opens at seven in the morning and closes at nine in the evening, from April to October.',
  'A boat passes the lock in about fifteen minutes, and the keeper lets two boats in at a time.',
  'Children under twelve must wear a life jacket, and life jackets are free.',
  'A booking can be canceled without a fee until the evening before.',
  'Dogs are welcome on rowing boats, but not on motor boats.',
].join(' ')

/** Earlier turns are not sent again, which bounds the price of an answer. */
const MAX_TURNS = 6

const conversations = new Map<string, Conversation>()

export function conversationOf({ email }: Account): Conversation {
  return conversations.get(email) ?? startConversation(email)
}

export function startConversation(email: string): Conversation {
  const started = { id: randomUUID(), turns: [] }
  conversations.set(email, started)
  return started
}

/** The official client, whose requests reach the gateway without a network and without a key. */
function clientFor({ customer, email }: Account, session?: string): OpenAI {
  const { fetch } = gateway.with({ customer, user: email, session })
  return new OpenAI({ fetch, baseURL: 'http://gateway/v1', apiKey: 'application', maxRetries: 0 })
}

/** Adds the answer to the conversation, or returns why there is none. */
export async function ask(account: Account, question: string, model: string): Promise<Refusal | undefined> {
  const { id, turns } = conversationOf(account)
  const messages: OpenAI.ChatCompletionMessageParam[] = [
    { role: 'system', content: HANDBOOK },
    ...turns.slice(-MAX_TURNS).flatMap(({ question, answer }) => [
      { role: 'user' as const, content: question },
      { role: 'assistant' as const, content: answer },
    ]),
    { role: 'user', content: question },
  ]
  try {
    const { data, response } = await clientFor(account, id)
      .chat.completions.create({ model, messages, max_tokens: 200 })
      .withResponse()
    turns.push({ question, answer: data.choices[0]?.message.content ?? '', bill: readBill(response) })
    return undefined
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error
    return { status: error.status ?? 502, question, message: error.message.replace(/^\d+ /, '') }
  }
}

/** The models that the plan of this account permits. */
export async function modelsOf(account: Account): Promise<readonly string[]> {
  const { data } = await clientFor(account).models.list()
  return data.map(({ id }) => id).filter((id) => id in MODELS)
}
