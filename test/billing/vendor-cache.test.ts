import { afterEach, describe, expect, it } from 'vitest'
import {
  anthropic,
  createGateway,
  openaiCompatible,
  readBill,
  type Gateway,
  type GatewayOptions,
} from '../../src/index.ts'
import { CachingVendor } from '../support/caching-vendor.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

const price = { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75, cacheWrite1h: 6 }
const limits = { contextWindowTokens: 200_000, maxOutputTokens: 1000, tokenizer: 'o200k' as const }
const MARGIN = 1.5

/** Nothing but the pass through the gateway. */
const OFF: Partial<GatewayOptions> = { cache: false, savings: { promptCache: false, thresholdTokens: thresholds(1e9) } }

interface Setting {
  readonly gateway: Gateway
  readonly vendor: CachingVendor
  readonly secret: string
  readonly upstream: Upstream
  now(): number
  advance(ms: number): void
}

const open: Setting[] = []

afterEach(async () => {
  for (const { gateway, upstream } of open.splice(0)) {
    await gateway.close()
    await upstream.close()
  }
})

describe('the bill of prompts that the vendor caches', () => {
  it.each([
    ['every prompt, at the input price', { input: 3, output: 15, cacheRead: 0.3 }],
    ['every prompt, with a charge for writes', price],
  ])('is the vendor’s charge times the margin if the vendor caches %s', async (_, vendorPrice) => {
    const setting = await start(vendorPrice, OFF)

    const billed = await converse(setting, 'chat/model', 12)

    expect(setting.vendor.charge).toBeGreaterThan(0)
    expect(billed / (setting.vendor.charge * MARGIN)).toBeCloseTo(1, 3)
  })

  it.each(['5m', '1h'])(
    'is the vendor’s charge times the margin for markers of the caller with a ttl of %s',
    async (ttl) => {
      const setting = await start(price, OFF)

      const billed = await converse(setting, 'messages/model', 12, ttl)

      expect(billed / (setting.vendor.charge * MARGIN)).toBeCloseTo(1, 3)
    },
  )

  it('uses the list price of all tokens if the options say so', async () => {
    const setting = await start(price, { ...OFF, billing: { cachedTokens: 'list' } })
    const direct = new CachingVendor({ ...price, cacheRead: 3, cacheWrite: 3, cacheWrite1h: 3 }, () => 0)

    const billed = await converse(setting, 'chat/model', 12)
    for (const { body } of setting.upstream.requests) direct.reply({ dialect: 'chat', body })

    expect(billed / (direct.charge * MARGIN)).toBeCloseTo(1, 3)
  })

  it('keeps the discount of the gateway’s own markers as a saving', async () => {
    const setting = await start(price, { ...OFF, savings: { thresholdTokens: thresholds(1e9) } })

    const billed = await converse(setting, 'messages/model', 12, undefined, { hasPause: false })
    const unmarked = new CachingVendor(price, () => 0)
    for (const { body } of setting.upstream.requests) unmarked.reply({ dialect: 'messages', body: stripMarkers(body) })

    expect(setting.vendor.charge).toBeLessThan(unmarked.charge / 2)
    expect(billed / (unmarked.charge * MARGIN)).toBeCloseTo(1, 3)
  })

  it('bills a shortened conversation as if it had been sent whole from turn to turn', async () => {
    const setting = await start({ input: 3, output: 15, cacheRead: 0.3 }, { cache: false })
    const whole = new CachingVendor({ input: 3, output: 15, cacheRead: 0.3 }, setting.now)

    const billed = await converse(setting, 'chat/model', 12, undefined, {
      headers: { 'x-savings-level': 'extreme' },
      onRequest: (body) => void whole.reply({ dialect: 'chat', body: stripMarkers(body) }),
    })

    expect(billed / (whole.charge * MARGIN)).toBeGreaterThan(0.9)
    expect(billed / (whole.charge * MARGIN)).toBeLessThan(1.1)
  })

  it('never exceeds a budget that covers writes to the cache', async () => {
    const setting = await start(price, OFF)
    const { id, value } = await setting.gateway.keys.create({
      name: 'small',
      budgetLimitCents: 20,
      budgetResetDuration: '1d',
    })

    await converse({ ...setting, secret: value }, 'messages/model', 8, '1h', { allowsRejections: true })
    const { currentUsageCents, cost } = await setting.gateway.keys.usage(id)

    expect(setting.vendor.charge).toBeGreaterThan(0)
    expect(cost.billedUsd).toBeLessThanOrEqual(0.2)
    expect(currentUsageCents).toBeLessThanOrEqual(20)
  })
})

async function start(
  vendorPrice: typeof price | Omit<typeof price, 'cacheWrite' | 'cacheWrite1h'>,
  options: Partial<GatewayOptions>,
): Promise<Setting> {
  let now = Date.UTC(2026, 0, 5, 12)
  const vendor = new CachingVendor(vendorPrice, () => now)
  const upstream = await startUpstream({ reply: vendor.reply })
  const models = [{ id: 'model', family: 'test', price: vendorPrice, ...limits }]
  const gateway = createGateway({
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models }),
      anthropic({ name: 'messages', baseUrl: upstream.url, apiKey: 'test', models }),
    ],
    margin: MARGIN,
    runtime: { now: () => now, random: () => 0 },
    ...options,
  })
  const { value } = await gateway.keys.create({ name: 'test' })
  const setting = {
    gateway,
    vendor,
    secret: value,
    upstream,
    now: () => now,
    advance: (ms: number) => void (now += ms),
  }
  open.push(setting)
  return setting
}

interface Steps {
  readonly headers?: Readonly<Record<string, string>>
  readonly onRequest?: (body: { readonly messages: readonly Turn[] }) => void
  readonly allowsRejections?: boolean
  /** One pause is longer than the vendor keeps a prefix. @default true */
  readonly hasPause?: boolean
}

interface Turn {
  readonly role: 'user' | 'assistant'
  readonly content: readonly Block[]
}

interface Block {
  readonly type: 'text'
  readonly text: string
  readonly cache_control?: { readonly type: 'ephemeral'; readonly ttl: string }
}

/** Sends a conversation that grows by about 4,000 tokens per turn. Returns the sum of the bills, in dollars. */
async function converse(
  setting: Setting,
  model: string,
  turns: number,
  ttl?: string,
  steps: Steps = {},
): Promise<number> {
  const { gateway, secret, advance } = setting
  const messages: Turn[] = []
  let billed = 0
  for (let turn = 0; turn < turns; turn++) {
    messages.push({ role: 'user', content: [{ type: 'text', text: paragraph(turn) }] })
    const body = { model, max_tokens: 40, messages: ttl === undefined ? messages : markLast(messages, ttl) }
    steps.onRequest?.(body)
    const path = model.startsWith('chat') ? 'chat/completions' : 'messages'
    const response = await gateway.fetch(`http://localhost/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...steps.headers },
      body: JSON.stringify(body),
    })
    if (!(steps.allowsRejections === true && response.status === 402))
      expect(response.status, await response.clone().text()).toBe(200)
    billed += readBill(response)?.billedUsd ?? 0
    messages.push({ role: 'assistant', content: [{ type: 'text', text: `Answer ${turn}: noted, with the numbers.` }] })
    advance(turn === 2 && steps.hasPause !== false ? 400_000 : 60_000)
  }
  return billed
}

function markLast(messages: readonly Turn[], ttl: string): readonly Turn[] {
  return messages.map((message, index) => {
    if (index !== messages.length - 1) return message
    return {
      ...message,
      content: message.content.map((block) => ({ ...block, cache_control: { type: 'ephemeral', ttl } })),
    }
  })
}

function paragraph(turn: number): string {
  const sentences = Array.from(
    { length: 160 },
    (_, at) =>
      `Entry ${turn}.${at}: pump ${(turn * 37 + at * 11) % 97} ran at ${(at * 13 + turn) % 89} bar near valve ${at}.`,
  )
  return `${sentences.join(' ')} What follows from entry ${turn}?`
}

function thresholds(tokens: number): {
  readonly vanishing: number
  readonly recursive: number
  readonly family: number
} {
  return { vanishing: tokens, recursive: tokens, family: tokens }
}

function stripMarkers(body: object): never {
  return JSON.parse(
    JSON.stringify(body, (name, value: unknown) => (name === 'cache_control' ? undefined : value)),
  ) as never
}
