import type { Prompt } from '../../src/core/prompt.ts'
import { costOf, promptTokens, NO_USAGE } from '../../src/core/money.ts'
import { createMemory } from '../../src/plugins/savings/memory.ts'
import { markForCache } from '../../src/plugins/savings/prompt-cache.ts'
import type { Steering } from '../../src/plugins/savings/tier.ts'
import type { WaterfallOptions } from '../../src/plugins/savings/waterfall.ts'
import { loadConversations, type ChatMessage, type Conversation } from './data.ts'
import { longChats } from './long-chat.ts'
import { jobOf, MODEL, meter, newWaterfall, NO_STEERING, smallModelOf, START } from './lab.ts'
import { createMarkedCache } from './marked-cache.ts'
import { promptOf } from './prompts.ts'
import { priceOf } from './replay.ts'
import { createUpstreamCache, type CacheTable } from './upstream-cache.ts'

/** Number of long chats, joined from mtragun's dialogs, for the kind `chats`. */
const CHATS = 6

export interface CostFigures {
  readonly conversations: number
  readonly requests: number
  /** Cost including small-model calls, in percent of the list price of all prompt tokens. */
  readonly share: number
  /** The same if everything is sent. */
  readonly plainShare: number
  /** Number of conversations that cost more than sending everything, and the largest excess in percent. */
  readonly moreExpensive: number
  readonly maxExcess: number
  readonly smallCalls: number
}

export interface CostOptions {
  readonly root: string
  readonly kind: string
  readonly table: CacheTable
  readonly secondsBetween: number
  /** Uses every `step`-th conversation, and at most `requests` requests of each. @default all */
  readonly step?: number
  readonly requests?: number
  /** @default automatic choice */
  readonly steering?: Steering
  readonly waterfall?: Partial<WaterfallOptions>
}

interface ConversationCost {
  readonly list: number
  readonly plain: number
  readonly paid: number
  readonly requests: number
  readonly smallCalls: number
}

/** Simulates whole conversations, one request per assistant message, with an upstream that caches prefixes. */
export async function measureCosts(options: CostOptions): Promise<CostFigures> {
  const all = options.kind === 'chats' ? longChats(options.root, CHATS) : loadConversations(options.root, options.kind)
  const played: ConversationCost[] = []
  for (const one of all.filter((_, at) => at % (options.step ?? 1) === 0)) played.push(await simulate(one, options))
  const sum = (field: keyof ConversationCost): number => played.reduce((total, one) => total + one[field], 0)
  const excess = played.map(({ paid, plain }) => (100 * paid) / plain - 100)
  return {
    conversations: played.length,
    requests: sum('requests'),
    share: (100 * sum('paid')) / sum('list'),
    plainShare: (100 * sum('plain')) / sum('list'),
    moreExpensive: excess.filter((percent) => percent > 0.05).length,
    maxExcess: Math.max(0, ...excess),
    smallCalls: sum('smallCalls'),
  }
}

export interface MarkerFigures {
  readonly conversations: number
  readonly requests: number
  /** Cost with markers, in percent of the list price of all prompt tokens, which is the cost without markers. */
  readonly share: number
  /** Number of conversations that cost more than without markers, and the largest excess in percent. */
  readonly moreExpensive: number
  readonly maxExcess: number
}

/**
 * Simulates whole conversations, sent unchanged, with a vendor that caches only marked prefixes: with the markers that
 * `savings.promptCache: true` places, and without markers.
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
      const tokens = meter.estimatePrompt(prompt)
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
    moreExpensive: excess.filter((percent) => percent > 0.05).length,
    maxExcess: Math.max(0, ...excess),
  }
}

/** Returns the accumulated cost of one conversation after each turn, and that of sending everything. */
export async function costOverTurns(
  options: CostOptions,
  index: number,
): Promise<readonly Pick<ConversationCost, 'paid' | 'plain'>[]> {
  const one = loadConversations(options.root, options.kind)[index]
  const costs: Pick<ConversationCost, 'paid' | 'plain'>[] = []
  if (one !== undefined) await simulate(one, options, (played) => costs.push(played))
  return costs
}

async function simulate(
  { id, messages }: Conversation,
  options: CostOptions,
  onTurn?: (costs: Pick<ConversationCost, 'paid' | 'plain'>) => void,
): Promise<ConversationCost> {
  const { table, secondsBetween, requests = Number.POSITIVE_INFINITY } = options
  const ledger = smallModelOf('lazy')
  const waterfall = newWaterfall(options.waterfall)
  const model = { ...MODEL, price: priceOf(table) }
  const sentCache = createUpstreamCache(table)
  const fullCache = createUpstreamCache(table)
  let list = 0
  let plain = 0
  let paid = 0
  const turns = turnsOf(messages).slice(0, requests)
  for (const [turn, prompt] of turns.entries()) {
    const now = START + turn * secondsBetween * 1000
    const job = jobOf(prompt, { owner: id, now, small: ledger.small, model, steering: options.steering ?? NO_STEERING })
    const { rewrite } = await waterfall(job)
    list += await meter.countPrompt(prompt)
    paid += await sentCache.costOf(rewrite?.prompt ?? prompt, now)
    plain += await fullCache.costOf(prompt, now)
    onTurn?.({ paid: paid + ledger.dollars / (MODEL.price.input / 1e6), plain })
  }
  paid += ledger.dollars / (MODEL.price.input / 1e6)
  return { list, plain, paid, requests: turns.length, smallCalls: ledger.calls }
}

function turnsOf(messages: readonly ChatMessage[]): Prompt[] {
  return [...messages.keys()]
    .filter((at) => at > 0 && messages[at]?.role === 'assistant')
    .map((at) => promptOf([{ role: 'system', content: 'You are a careful assistant.' }, ...messages.slice(0, at)]))
}
