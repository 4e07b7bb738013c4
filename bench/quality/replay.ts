import type { Price } from '../../src/core/money.ts'
import { textOfMessage } from '../../src/core/messages.ts'
import { type Prompt } from '../../src/core/prompt.ts'
import type { Steering } from '../../src/plugins/savings/tier.ts'
import type { WaterfallOptions } from '../../src/plugins/savings/waterfall.ts'
import type { ChatMessage } from './data.ts'
import { jobOf, meter, MODEL, newWaterfall, NO_STEERING, smallModelOf, START } from './lab.ts'
import { createHaystack, percent, shareOf } from './metrics.ts'
import { promptOf } from './prompts.ts'
import { createUpstreamCache, type CacheTable } from './upstream-cache.ts'

/** A request of a conversation. Requests with evidence or needed lines are measured. */
export interface Turn {
  readonly messages: readonly ChatMessage[]
  readonly evidence?: readonly string[]
  readonly needed?: readonly (readonly string[])[]
}

export interface ReplayOptions {
  readonly table: CacheTable
  /** @default 30 */
  readonly secondsBetween?: number
  /** @default automatic choice */
  readonly steering?: Steering
  readonly waterfall?: Partial<WaterfallOptions>
  /** Also sends each measured request as the first one of a new conversation. */
  readonly first?: boolean
}

export interface Replay {
  readonly requests: number
  readonly rewritten: number
  /** Share of the content that is kept at the measured requests, in percent: in the running conversation. */
  readonly kept: number
  /** The same for each request as the first one of a conversation. NaN if it is not measured. */
  readonly first: number
  readonly measured: number
  /** Mean size of the measured requests in tokens. */
  readonly received: number
  readonly sent: number
  readonly firstSent: number
  /** Costs in tokens at list price. `plain` is the cost of sending everything. */
  readonly list: number
  readonly plain: number
  readonly paid: number
  readonly smallCalls: number
  readonly shares: readonly number[]
  readonly tiers: Readonly<Record<string, number>>
}

/** Sends the requests of a conversation one after the other, so that the state of the gateway is that of a real conversation. */
export async function replay(id: string, turns: Iterable<Turn>, options: ReplayOptions): Promise<Replay> {
  const { table, secondsBetween = 30, steering = NO_STEERING } = options
  const ledger = smallModelOf('lazy')
  const clock = { now: START }
  const settings = { ...options.waterfall, now: () => clock.now }
  const waterfall = newWaterfall(settings)
  const model = { ...MODEL, price: priceOf(table) }
  const sentCache = createUpstreamCache(table)
  const fullCache = createUpstreamCache(table)
  const tiers: Record<string, number> = {}
  const rows: { kept: number | undefined; first: number | undefined; before: number; after: number; alone: number }[] =
    []
  let [requests, rewritten, list, plain, paid] = [0, 0, 0, 0, 0]
  for (const { messages, evidence = [], needed = [] } of turns) {
    const { now } = clock
    const prompt = promptOf(messages)
    const result = await waterfall(jobOf(prompt, { owner: id, now, small: ledger.small, model, steering }))
    const sent = result.rewrite?.prompt ?? prompt
    const name = result.rewrite === undefined ? 'none' : `tier ${result.rewrite.tier}`
    tiers[name] = (tiers[name] ?? 0) + 1
    requests++
    if (result.rewrite !== undefined) rewritten++
    const size = await meter.countPrompt(prompt)
    list += size
    paid += await sentCache.costOf(sent, now)
    plain += await fullCache.costOf(prompt, now)
    clock.now += secondsBetween * 1000
    if (evidence.length + needed.length === 0) continue
    const alone =
      options.first === true
        ? await newWaterfall(settings)(jobOf(prompt, { now, small: smallModelOf('lazy').small, model, steering }))
        : undefined
    const firstPrompt = alone?.rewrite?.prompt ?? prompt
    rows.push({
      kept: keptOf(sent, evidence, needed),
      first: alone === undefined ? undefined : keptOf(firstPrompt, evidence, needed),
      before: size,
      after: await meter.countPrompt(sent),
      alone: await meter.countPrompt(firstPrompt),
    })
  }
  paid += ledger.dollars / (MODEL.price.input / 1e6)
  const mean = (field: 'before' | 'after' | 'alone'): number =>
    rows.reduce((sum, row) => sum + row[field], 0) / Math.max(1, rows.length)
  return {
    requests,
    rewritten,
    kept: percent(rows.map((row) => row.kept)),
    first: percent(rows.map((row) => row.first)),
    measured: rows.length,
    received: mean('before'),
    sent: mean('after'),
    firstSent: mean('alone'),
    list,
    plain,
    paid,
    smallCalls: ledger.calls,
    shares: rows.flatMap(({ kept }) => kept ?? []),
    tiers,
  }
}

function keptOf(sent: Prompt, evidence: readonly string[], needed: readonly (readonly string[])[]): number | undefined {
  const all = createHaystack(sent.messages.map(textOfMessage))
  return evidence.length > 0
    ? shareOf(evidence, (text) => all.keeps(text))
    : shareOf(needed, (lines) => lines.some((line) => all.keeps(line)))
}

export function priceOf({ read, write }: CacheTable): Price {
  const { input } = MODEL.price
  return read < 1 ? { ...MODEL.price, cacheRead: input * read, cacheWrite: input * write } : MODEL.price
}
