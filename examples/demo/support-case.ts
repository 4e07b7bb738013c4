import type { ChatMessage, Conversation } from './conversation.ts'

/** The facts that the last question needs. Each one occurs once in the conversation. */
const FACTS: readonly { readonly turn: number; readonly words: string; readonly text: string }[] = [
  { turn: 12, words: 'RMA-48213', text: 'The return of the damaged heat pump is registered as RMA-48213.' },
  {
    turn: 31,
    words: 'Delft',
    text: 'The replacement heat pump must be sent to the new depot in Delft, not to the old address.',
  },
  { turn: 57, words: '1,284.50', text: 'We agreed on a refund of 1,284.50 EUR for the broken heat pump.' },
  { turn: 74, words: '14 March', text: 'The carrier promised the replacement heat pump for 14 March.' },
  { turn: 88, words: 'Okafor', text: 'Ms. Okafor signs for the replacement heat pump at the depot.' },
]

const QUESTION =
  'Please sum up the case of the damaged heat pump: the return number, the refund we agreed on, where the replacement goes, for which day the carrier promised it, and who signs for it.'

const TURNS = 96
const ROWS = 95
const PRODUCTS = ['valve', 'boiler', 'thermostat', 'radiator', 'gasket', 'manometer', 'expansion tank', 'pump seal']
const STATES = ['packed', 'shipped', 'delivered', 'in customs', 'returned', 'on hold']
const CITIES = ['Aachen', 'Bruges', 'Cologne', 'Dresden', 'Eindhoven', 'Ghent', 'Liege', 'Utrecht']
const REQUESTS = [
  'Can you check the open orders of the branch in',
  'Which deliveries are late for',
  'I need the stock list for',
  'What did we return last month from',
]

/** Returns a long support case with a tool call in every turn, mostly about other orders. */
export function supportCase(): Conversation {
  const messages: ChatMessage[] = [
    {
      role: 'system',
      content: 'You are the service desk of a wholesaler for heating parts. Always state amounts in EUR.',
    },
  ]
  for (let turn = 0; turn < TURNS; turn++) messages.push(...createTurn(turn))
  return { name: 'a support case', messages: [...messages, { role: 'user', content: QUESTION }] }
}

/** Returns the number of facts in a text. */
export function factsIn(text: string): { readonly kept: number; readonly of: number } {
  return { kept: FACTS.filter(({ words }) => text.includes(words)).length, of: FACTS.length }
}

function createTurn(turn: number): ChatMessage[] {
  const city = pick(CITIES, turn * 5)
  const fact = FACTS.find((each) => each.turn === turn)
  const id = `call_${turn}`
  const call = {
    id,
    type: 'function',
    function: { name: 'find_orders', arguments: JSON.stringify({ city, turn }) },
  } as const
  return [
    {
      role: 'user',
      content: `${pick(REQUESTS, turn)} ${city}?${fact === undefined ? '' : ` And for the file: ${fact.text}`}`,
    },
    { role: 'assistant', content: null, tool_calls: [call] },
    {
      role: 'tool',
      tool_call_id: id,
      content: JSON.stringify(Array.from({ length: ROWS }, (_, row) => createOrder(turn, row))),
    },
    { role: 'assistant', content: `${city} has ${ROWS} orders; ${pick(STATES, turn)} is the state of the oldest one.` },
  ]
}

function createOrder(turn: number, row: number): Record<string, string | number> {
  const number = turn * 1009 + row * 17
  return {
    order: 700_000 + number,
    item: pick(PRODUCTS, number),
    pieces: 1 + (number % 40),
    state: pick(STATES, number),
  }
}

function pick(list: readonly string[], index: number): string {
  return list[index % list.length] ?? ''
}
