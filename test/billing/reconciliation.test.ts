import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { anthropic, createGateway, openaiCompatible, type GatewayOptions } from '../../src/index.ts'
import { CachingVendor } from '../support/caching-vendor.ts'
import {
  agentConversation,
  chatConversation,
  requestsOf,
  withMarkers,
  type PlayedConversation,
  type WireFormat,
} from '../support/conversation-kinds.ts'
import { startUpstream } from '../support/upstream.ts'
import { everyNth } from '../support/full.ts'

const MARGIN = 1.5
const INPUT = 3

const PRICES = [
  { name: 'reads at 0.1, writes at 1.25', price: { cacheRead: 0.3, cacheWrite: 3.75 } },
  { name: 'reads at 0.25, writes at 1', price: { cacheRead: 0.75 } },
  { name: 'no cache price', price: { cacheRead: INPUT } },
].map(({ name, price }) => ({ name, price: { input: INPUT, output: 15, ...price } }))

const CACHES = [
  { cache: 'caches each prefix', format: 'chat', isMarked: false },
  { cache: 'caches marked prefixes', format: 'messages', isMarked: true },
  { cache: 'caches marked prefixes, of which there are none', format: 'messages', isMarked: false },
] as const

const KINDS = ['chat', 'agent'] as const

const CASES = PRICES.flatMap((price) => CACHES.flatMap((cache) => KINDS.map((kind) => ({ ...price, ...cache, kind }))))

type Case = (typeof CASES)[number]

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

describe('the sum of the bills, compared with what a vendor with a prompt cache charges', () => {
  it.each(everyNth(3, CASES.filter(isCached)))(
    'is the margin with everything off: $kind, $name, $cache',
    async (one) => {
      const { billed, charge } = await play(one, { cache: false }, { 'x-savings-level': 'off' })

      expect(charge).toBeGreaterThan(0)
      expect(billed / (charge * MARGIN)).toBeGreaterThan(0.98)
      expect(billed / (charge * MARGIN)).toBeLessThan(1.02)
    },
  )

  it.each(everyNth(3, CASES))(
    'is at most the margin on the charge without the gateway: $kind, $name, $cache',
    async (one) => {
      const { billed, withoutGateway, charge, isRewritten } = await play(one, {})

      // The vendor does not count the received prompt of a rewritten one, so its tokens are an estimate.
      const tolerance = isRewritten ? 0.02 : 1e-6
      expect(billed / (withoutGateway * MARGIN)).toBeLessThanOrEqual(1 + tolerance)
      expect(charge).toBeLessThanOrEqual(withoutGateway * (1 + 1e-6))
    },
  )
})

interface Totals {
  /** In dollars. */
  readonly billed: number
  readonly charge: number
  readonly withoutGateway: number
  readonly isRewritten: boolean
}

function isCached({ format, isMarked }: Case): boolean {
  return format === 'chat' || isMarked
}

/** Plays two conversations side by side, each with a pause that is longer than the vendor's cache life. */
async function play(
  { price, kind, format, isMarked }: Case,
  options: Partial<GatewayOptions>,
  headers: Readonly<Record<string, string>> = {},
): Promise<Totals> {
  let now = Date.UTC(2026, 0, 5, 12)
  const vendor = new CachingVendor(price, () => now)
  const direct = new CachingVendor(price, () => now)
  const upstream = await startUpstream({ reply: vendor.reply })
  const models = [{ id: 'model', family: 'test', price, contextWindowTokens: 200_000, maxOutputTokens: 1000 }]
  const gateway = createGateway({
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models }),
      anthropic({ name: 'messages', baseUrl: upstream.url, apiKey: 'test', models }),
    ],
    margin: MARGIN,
    runtime: { now: () => now, random: () => 0 },
    ...options,
  })
  closers.push(async () => {
    await gateway.close()
    await upstream.close()
  })
  const { id, value } = await gateway.keys.create({ name: 'test' })
  const bodies = [1, 2].map((seed) => requestsOf(conversationOf(kind, seed, format), format))
  for (const [turn, first] of (bodies[0] ?? []).entries()) {
    for (const [index, request] of [first, bodies[1]?.[turn] ?? first].entries()) {
      const body: JsonObject = { model: `${format}/model`, ...(isMarked ? withMarkers(request) : request) }
      direct.receive({ dialect: format === 'chat' ? 'chat' : 'messages', body })
      const response = await gateway.fetch(
        `http://localhost/v1/${format === 'chat' ? 'chat/completions' : 'messages'}`,
        {
          method: 'POST',
          headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json', ...headers },
          body: JSON.stringify({ ...body, stream: (turn + index) % 2 === 1 }),
        },
      )
      expect(response.status, await response.text()).toBe(200)
      now += 20_000
    }
    if (turn === 5) now += 400_000
  }
  const { cost, tokens } = await gateway.keys.usage(id)
  const amounts = { billed: cost.billedUsd, charge: vendor.charge, withoutGateway: direct.charge }
  return { ...amounts, isRewritten: tokens.saved > 0 }
}

function conversationOf(kind: Case['kind'], seed: number, format: WireFormat): PlayedConversation {
  return kind === 'chat' ? chatConversation(seed, 12) : agentConversation(seed, 11, format)
}
