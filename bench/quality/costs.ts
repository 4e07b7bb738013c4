import { textOfMessage, type Prompt } from '../../src/core/prompt.ts'
import type { Wishes } from '../../src/savings/tier.ts'
import type { WaterfallOptions } from '../../src/savings/waterfall.ts'
import { loadConversations, type ChatMessage } from './data.ts'
import { jobOf, MODEL, meter, newWaterfall, smallModelOf, START } from './lab.ts'
import { promptOf } from './prompts.ts'

/** An upstream's cache: reading costs a tenth, writing a quarter more. */
const READ = 0.1
const WRITE = 1.25
const SECONDS_BETWEEN = 30

export interface CostFigures {
  readonly requests: number
  /** What was paid, small-model calls included, in percent of all prompt tokens at list price. */
  readonly share: number
  readonly smallCalls: number
}

export interface CostOptions {
  readonly root: string
  readonly kind: string
  /** How many conversations, and how many requests of each at the most. */
  readonly conversations: number
  readonly requests: number
  readonly wishes?: Wishes
  readonly waterfall?: Partial<WaterfallOptions>
}

/** Plays whole conversations, one request for each answer of the assistant, against an upstream that caches prefixes. */
export async function measureCosts(options: CostOptions): Promise<CostFigures> {
  let list = 0
  let paid = 0
  let requests = 0
  let smallCalls = 0
  for (const { id, messages } of loadConversations(options.root, options.kind).slice(0, options.conversations)) {
    const ledger = smallModelOf('lazy')
    const waterfall = newWaterfall(options.waterfall)
    let known: readonly string[] = []
    for (const [turn, prompt] of turnsOf(messages).slice(0, options.requests).entries()) {
      const now = START + turn * SECONDS_BETWEEN * 1000
      const price = { ...MODEL.price, cacheRead: MODEL.price.input * READ }
      const job = jobOf(prompt, { owner: id, now, small: ledger.small, model: { ...MODEL, price } })
      const result = options.wishes === undefined ? undefined : await waterfall({ ...job, wishes: options.wishes })
      const sent = result?.rewrite?.prompt ?? prompt
      list += await meter.countOf(prompt)
      const cost = await costOf(sent, known)
      paid += cost
      known = sent.messages.map(textOfMessage)
      requests++
    }
    paid += ledger.dollars / (MODEL.price.input / 1e6)
    smallCalls += ledger.calls
  }
  return { requests, share: (100 * paid) / list, smallCalls }
}

function turnsOf(messages: readonly ChatMessage[]): Prompt[] {
  return [...messages.keys()]
    .filter((at) => at > 0 && messages[at]?.role === 'assistant')
    .map((at) => promptOf([{ role: 'system', content: 'You are a careful assistant.' }, ...messages.slice(0, at)]))
}

/** Tokens at list price: the beginning that the upstream knows at the price of reading, the rest at that of writing. */
async function costOf(sent: Prompt, known: readonly string[]): Promise<number> {
  let cost = 0
  let same = true
  for (const [at, message] of sent.messages.entries()) {
    same &&= known[at] === textOfMessage(message)
    cost += (await meter.countOfMessage(message)) * (same ? READ : WRITE)
  }
  return cost
}
