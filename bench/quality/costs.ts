import { textOfMessage, type Prompt } from '../../src/core/prompt.ts'
import { NO_USAGE, promptTokens } from '../../src/core/answer.ts'
import { costOf, type Price } from '../../src/core/money.ts'
import { createMemory } from '../../src/savings/conversation.ts'
import { markForCache } from '../../src/savings/prompt-cache.ts'
import type { Steering } from '../../src/savings/tier.ts'
import type { WaterfallOptions } from '../../src/savings/waterfall.ts'
import { loadConversations, type ChatMessage, type Conversation } from './data.ts'
import { longChats } from './long-chat.ts'
import { jobOf, MODEL, meter, newWaterfall, NO_STEERING, smallModelOf, START } from './lab.ts'
import { createMarkedCache } from './marked-cache.ts'
import { promptOf } from './prompts.ts'

/** Prices of an upstream's prompt cache, as shares of the input price. */
export interface CacheTable {
  readonly name: string
  readonly read: number
  readonly write: number
}

export const CACHE_TABLES: readonly CacheTable[] = [
  { name: 'read 0.1, write 1.25', read: 0.1, write: 1.25 },
  { name: 'read 0.25, write 1', read: 0.25, write: 1 },
  { name: 'read 0.1, write 2', read: 0.1, write: 2 },
  { name: 'no cache', read: 1, write: 1 },
]

/** Long chats put together of mtragun's dialogs, for the kind `chats`. */
const CHATS = 6

/** How long an upstream keeps what it has read. */
const CACHE_MS = 5 * 60 * 1000

export interface CostFigures {
  readonly conversations: number
  readonly requests: number
  /** What was paid, small-model calls included, in percent of all prompt tokens at list price. */
  readonly share: number
  /** The same when everything is sent. */
  readonly plainShare: number
  /** Conversations that cost more than sending everything, and by how many percent the worst of them. */
  readonly dearer: number
  readonly worst: number
  readonly smallCalls: number
}

export interface CostOptions {
  readonly root: string
  readonly kind: string
  readonly table: CacheTable
  readonly secondsBetween: number
  /** Every so many conversations, and how many requests of each at the most. @default all */
  readonly step?: number
  readonly requests?: number
  /** @default none: the automatic choice */
  readonly steering?: Steering
  readonly waterfall?: Partial<WaterfallOptions>
}

interface Played {
  readonly list: number
  readonly plain: number
  readonly paid: number
  readonly requests: number
  readonly smallCalls: number
}

/** Plays whole conversations, one request for each answer of the assistant, against an upstream that caches prefixes. */
export async function measureCosts(options: CostOptions): Promise<CostFigures> {
  const all = options.kind === 'chats' ? longChats(options.root, CHATS) : loadConversations(options.root, options.kind)
  const played: Played[] = []
  for (const one of all.filter((_, at) => at % (options.step ?? 1) === 0)) played.push(await play(one, options))
  const sum = (field: keyof Played): number => played.reduce((total, one) => total + one[field], 0)
  const excess = played.map(({ paid, plain }) => (100 * paid) / plain - 100)
  return {
    conversations: played.length,
    requests: sum('requests'),
    share: (100 * sum('paid')) / sum('list'),
    plainShare: (100 * sum('plain')) / sum('list'),
    dearer: excess.filter((percent) => percent > 0.05).length,
    worst: Math.max(0, ...excess),
    smallCalls: sum('smallCalls'),
  }
}

export interface MarkerFigures {
  readonly conversations: number
  readonly requests: number
  /** What was paid with markers, in percent of all prompt tokens at list price: what is paid without. */
  readonly share: number
  /** Conversations that cost more than without markers, and by how many percent the worst of them. */
  readonly dearer: number
  readonly worst: number
}

/**
 * Plays whole conversations, sent as they are, against a vendor that caches what is marked: with the markers that
 * `savings.promptCache: 'auto'` places, and without any.
 */
export async function measureMarkers(options: CostOptions): Promise<MarkerFigures> {
  const { root, kind, table, secondsBetween, step = 1, requests = Number.POSITIVE_INFINITY } = options
  const all = kind === 'chats' ? longChats(root, CHATS) : loadConversations(root, kind)
  const model = { ...MODEL, price: priceOf(table) }
  const played: { readonly paid: number; readonly plain: number; readonly turns: number }[] = []
  for (const { id, messages } of all.filter((_, at) => at % step === 0)) {
    const memory = createMemory({ store: { get: () => undefined, set: async () => {} }, now: () => START })
    const vendor = createMarkedCache()
    let paid = 0
    let plain = 0
    const turns = turnsOf(messages).slice(0, requests)
    for (const [turn, prompt] of turns.entries()) {
      const now = START + turn * secondsBetween * 1000
      const tokens = meter.estimateOf(prompt)
      const marked = await markForCache(memory, { prompt, model, tokens, owner: id, now })
      const usage = vendor.usageOf(marked?.prompt ?? prompt, now)
      await marked?.report(usage)
      paid += costOf(usage, model.price)
      plain += costOf({ ...NO_USAGE, inputTokens: promptTokens(usage) }, model.price)
    }
    played.push({ paid, plain, turns: turns.length })
  }
  const sum = (field: 'paid' | 'plain' | 'turns'): number => played.reduce((total, one) => total + one[field], 0)
  const excess = played.map(({ paid, plain }) => (100 * paid) / plain - 100)
  return {
    conversations: played.length,
    requests: sum('turns'),
    share: (100 * sum('paid')) / sum('plain'),
    dearer: excess.filter((percent) => percent > 0.05).length,
    worst: Math.max(0, ...excess),
  }
}

/** What one conversation has cost after each turn, and what sending everything would have. */
export async function costOverTurns(
  options: CostOptions,
  index: number,
): Promise<readonly Pick<Played, 'paid' | 'plain'>[]> {
  const one = loadConversations(options.root, options.kind)[index]
  const costs: Pick<Played, 'paid' | 'plain'>[] = []
  if (one !== undefined) await play(one, options, (played) => costs.push(played))
  return costs
}

async function play(
  { id, messages }: Conversation,
  options: CostOptions,
  onTurn?: (costs: Pick<Played, 'paid' | 'plain'>) => void,
): Promise<Played> {
  const { table, secondsBetween, requests = Number.POSITIVE_INFINITY } = options
  const ledger = smallModelOf('lazy')
  const waterfall = newWaterfall(options.waterfall)
  const model = { ...MODEL, price: priceOf(table) }
  const real = createUpstreamCache(table)
  const whole = createUpstreamCache(table)
  let list = 0
  let plain = 0
  let paid = 0
  const turns = turnsOf(messages).slice(0, requests)
  for (const [turn, prompt] of turns.entries()) {
    const now = START + turn * secondsBetween * 1000
    const job = jobOf(prompt, { owner: id, now, small: ledger.small, model, steering: options.steering ?? NO_STEERING })
    const { rewrite } = await waterfall(job)
    list += await meter.countOf(prompt)
    paid += await real.costOf(rewrite?.prompt ?? prompt, now)
    plain += await whole.costOf(prompt, now)
    onTurn?.({ paid: paid + ledger.dollars / (MODEL.price.input / 1e6), plain })
  }
  paid += ledger.dollars / (MODEL.price.input / 1e6)
  return { list, plain, paid, requests: turns.length, smallCalls: ledger.calls }
}

function priceOf({ read, write }: CacheTable): Price {
  const { input } = MODEL.price
  return read < 1 ? { ...MODEL.price, cacheRead: input * read, cacheWrite: input * write } : MODEL.price
}

function turnsOf(messages: readonly ChatMessage[]): Prompt[] {
  return [...messages.keys()]
    .filter((at) => at > 0 && messages[at]?.role === 'assistant')
    .map((at) => promptOf([{ role: 'system', content: 'You are a careful assistant.' }, ...messages.slice(0, at)]))
}

/** An upstream that keeps every prefix it has read for five minutes since the last reading. */
function createUpstreamCache({ read, write }: CacheTable): {
  readonly costOf: (sent: Prompt, now: number) => Promise<number>
} {
  let known: { readonly texts: readonly string[]; readonly at: number }[] = []
  return {
    /** Tokens at list price: the longest known beginning at the price of reading, the rest at that of writing. */
    async costOf(sent, now) {
      const texts = sent.messages.map(textOfMessage)
      known = known.filter(({ at }) => now - at <= CACHE_MS)
      const same = Math.max(0, ...known.map((one) => sharedBeginning(one.texts, texts)))
      known = [...known.filter((one) => sharedBeginning(one.texts, texts) < one.texts.length), { texts, at: now }]
      let cost = 0
      for (const [at, message] of sent.messages.entries()) {
        cost += (await meter.countOfMessage(message)) * (at < same ? read : write)
      }
      return cost
    },
  }
}

function sharedBeginning(one: readonly string[], other: readonly string[]): number {
  const differs = one.findIndex((text, at) => text !== other[at])
  return differs === -1 ? one.length : differs
}
