/** @own-process: sends up to 1,000 requests. */
import { afterEach, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible, type LogRecord } from '../../src/index.ts'
import { gemini } from '../../src/providers.ts'
import { billedReply, type VendorBill, vendorBillOf } from '../support/billing-vendor.ts'
import { PATIENT } from '../support/fleet/jobs.ts'
import { IS_FULL } from '../support/full.ts'
import { limitCheckingStore } from '../support/limit-checking-store.ts'
import { type Reply, sendRequest } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)
const BODIES = Number(process.env['MIXED_BODIES'] ?? (IS_FULL ? 1000 : 300))
const SEED = Number(process.env['MIXED_SEED'] ?? 26)
const WAVE = 50
const BUDGET_CENTS = 4 * BODIES
const NANO_PER_CENT = 10_000_000
const MARGIN = 1.5
/** Nano-dollars per token. */
const INPUT = 1000
const OUTPUT = 2000
const MODEL = {
  id: 'large',
  price: { input: 1, output: 2, cacheWrite: 1.25, cacheWrite1h: 2 },
  contextWindowTokens: 200_000,
  maxOutputTokens: 1000,
}

let stage: Stage | undefined
let vendor: Upstream | undefined
afterEach(async () => {
  await stage?.close()
  await vendor?.close()
})

type Random = () => number

/** The generator mulberry32. */
function seeded(seed: number): Random {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

const integer = (random: Random, max: number): number => 1 + Math.floor(random() * max)
const digits = (random: Random): string => '1234567890'.repeat(integer(random, 40))

/** Fields that vendors bill, fields that make vendors read, and fields that cost nothing. */
const FIELDS: Readonly<Record<string, (random: Random) => Json>> = {
  n: (random) => integer(random, 4),
  best_of: (random) => integer(random, 8),
  num_completions: (random) => integer(random, 8),
  num_return_sequences: (random) => String(integer(random, 4)),
  candidateCount: (random) => integer(random, 4),
  prediction: (random) => ({ type: 'content', content: digits(random) }),
  max_new_tokens: (random) => integer(random, 1000),
  max_output_tokens: (random) => integer(random, 1000),
  max_completion_tokens: (random) => integer(random, 1000),
  thinking_budget: (random) => integer(random, 1000),
  enable_thinking: () => true,
  generationConfig: (random) => ({ candidateCount: integer(random, 4), maxOutputTokens: integer(random, 1000) }),
  extra_body: (random) => ({ best_of: integer(random, 8), cached_content: 'cachedContents/1' }),
  service_tier: (random) => (random() < 0.5 ? 'priority' : 'default'),
  provider: (random) => (random() < 0.5 ? { order: ['dear'] } : { sort: 'price', allow_fallbacks: true }),
  data_sources: () => [{ type: 'azure_search', parameters: { index_name: 'a' } }],
  documents: () => [{ id: 'doc-1' }],
  cached_content: () => 'cachedContents/1',
  cachedContent: () => 'cachedContents/1',
  web_search_options: () => ({ search_context_size: 'high' }),
  search_parameters: () => ({ mode: 'on' }),
  enable_search: () => 1,
  mcp_servers: () => [{ type: 'url', url: 'https://mcp.example', name: 'm' }],
  container: () => 'container_1',
  conversation: () => 'conv_1',
  google_search: () => 'yes',
  url_context: () => ({ max_uses: 3 }),
  retrieval: () => ({ top_k: 3 }),
  plugins: () => [{ id: 'web' }],
  assistant_id: () => 'asst_1',
  deep_mode: () => true,
  page: () => 'https://pages.example/book',
  context_management: (random) => ({ edits: [{ type: random() < 0.5 ? 'compact_20260112' : 'clear_tool_uses' }] }),
  notes: (random) => ({ of: [digits(random)] }),
  tags: () => ['a', 'b'],
  seed: (random) => integer(random, 9),
  metadata: () => ({ user_id: 'u-1' }),
  tools: () => [{ type: 'web_search_20250305', name: 'web_search' }],
  top_k: (random) => integer(random, 9),
}
const NAMES = Object.keys(FIELDS)

/** Spellings that lenient vendors accept. */
const SPELLINGS: readonly ((name: string) => string)[] = [
  (name) => name,
  (name) => name,
  (name) => name,
  (name) => name.toUpperCase(),
  (name) => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
  (name) => name.replaceAll('_', '-'),
]

interface MixedRequest {
  readonly path: string
  readonly body: JsonObject
}

const CACHE_CONTROLS: readonly JsonObject[] = [{}, { type: 'ephemeral' }, { type: 'ephemeral', ttl: '1h' }]

const HELLO = [{ role: 'user', content: 'Hi?' }]
const chat = (model: string) => (): MixedRequest => ({ path: '/v1/chat/completions', body: { model, messages: HELLO } })
const responses = (model: string) => (): MixedRequest => ({ path: '/v1/responses', body: { model, input: 'Hi?' } })
const messages = (model: string) => (): MixedRequest => ({ path: '/v1/messages', body: { model, messages: HELLO } })

/** Every client format with every upstream format. */
const FORMATS: readonly ((random: Random) => MixedRequest)[] = [
  (random) => {
    const cache_control = CACHE_CONTROLS[Math.floor(random() * 3)] ?? {}
    const content = [{ type: 'text', text: digits(random), ...(cache_control['type'] && { cache_control }) }]
    return { path: '/v1/messages', body: { model: 'anthropic/large', messages: [{ role: 'user', content }] } }
  },
  messages('chat/large'),
  messages('gemini/large'),
  chat('chat/large'),
  chat('anthropic/large'),
  chat('gemini/large'),
  responses('native/large'),
  responses('chat/large'),
  responses('anthropic/large'),
  responses('gemini/large'),
]

function limitField(path: string): string {
  return path === '/v1/responses' ? 'max_output_tokens' : 'max_tokens'
}

function makeRequest(random: Random): MixedRequest {
  const format = FORMATS[Math.floor(random() * FORMATS.length)] ?? FORMATS[0]
  const made = format?.(random)
  if (made === undefined) throw new Error('There is no format')
  const { path } = made
  const fields: Record<string, Json | undefined> = { ...made.body }
  if (path === '/v1/messages' || random() < 0.7) fields[limitField(path)] = integer(random, 200)
  for (let count = Math.floor(random() * 4); count > 0; count--) {
    const name = NAMES[Math.floor(random() * NAMES.length)] ?? 'n'
    const spell = SPELLINGS[Math.floor(random() * SPELLINGS.length)]
    const spelled = spell?.(name) ?? name
    fields[spelled] ??= FIELDS[name]?.(random)
  }
  // The mock vendor streams the chat and messages formats.
  if (!['native/large', 'gemini/large'].includes(String(fields['model'])) && random() < 0.3) fields['stream'] = true
  return { path, body: fields as JsonObject }
}

const listCost = ({ input, output }: VendorBill): number => input * INPUT + output * OUTPUT
const cachePremium = ({ cacheWrite: { tokens, multiple } }: VendorBill): number => tokens * INPUT * (multiple - 1)

it(`${BODIES} bodies of mixed fields on one budget are billed what the vendor bills, and at most the budget`, async () => {
  const store = limitCheckingStore(() => NOON)
  const bills: VendorBill[] = []
  const upstream = (vendor = await startUpstream({
    reply: (request) => {
      const bill = vendorBillOf(request.body, MODEL)
      if (!request.path.includes('count')) bills.push(bill)
      return billedReply(request, bill)
    },
  }))
  const log: LogRecord[] = []
  const at = (stage = await startStage({
    store,
    margin: MARGIN,
    onUntranslatable: 'drop',
    log: (record) => void log.push(record),
    ...PATIENT,
    runtime: { now: () => NOON, random: () => 0 },
    key: { name: 'mixed', budget_limit_cents: BUDGET_CENTS, rate_limit_requests: 1_000_000 },
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models: [MODEL] }),
      openaiCompatible({ name: 'native', baseUrl: upstream.baseUrl, models: [MODEL], responses: true }),
      anthropic({ baseUrl: upstream.url, apiKey: 'k', models: [MODEL] }),
      gemini({ baseUrl: upstream.url, apiKey: 'k', models: [MODEL] }),
    ],
  }))

  const random = seeded(SEED)
  const replies: Reply[] = []
  const served = new Set<string>()
  for (let sent = 0; sent < BODIES; sent += WAVE) {
    const requests = Array.from({ length: Math.min(WAVE, BODIES - sent) }, () => makeRequest(random))
    const wave = await Promise.all(requests.map(({ path, body }) => sendRequest(at, body, { path })))
    for (const [index, { status }] of wave.entries()) {
      if (status === 200) served.add(`${requests[index]?.path} ${String(requests[index]?.body['model'])}`)
    }
    replies.push(...wave)
  }
  await store.waitUntilSettled()

  const failed = replies.filter(({ status }) => ![200, 400, 402].includes(status))
  expect(failed.map(({ status, text }) => `${status} ${text}`)).toEqual([])
  expect(served.size).toBe(FORMATS.length)
  expect(replies.filter(({ status }) => status === 200).length).toBeGreaterThan(BODIES / 10)
  expect(replies.filter(({ status }) => status === 402).length).toBeGreaterThan(BODIES / 50)
  expect(store.violations).toEqual([])
  // The reservation covered all usage: nothing that the vendor reported was clamped.
  expect(log.filter(({ event }) => String(event).includes('the excess is not billed'))).toEqual([])
  const budget = BUDGET_CENTS * NANO_PER_CENT
  const atListPrice = bills.reduce((sum, bill) => sum + listCost(bill), 0)
  const invoiced = bills.reduce((sum, bill) => sum + (listCost(bill) + cachePremium(bill)) * bill.multiple, 0)
  const charged = bills.reduce((sum, bill) => sum + listCost(bill) + cachePremium(bill), 0)
  expect(atListPrice * MARGIN).toBeLessThanOrEqual(budget)
  expect(store.dailyTotals().billed).toBeLessThanOrEqual(budget)
  expect(Math.abs(store.dailyTotals().billed - charged * MARGIN)).toBeLessThanOrEqual(bills.length)
  expect(store.dailyTotals().actual).toBe(invoiced)
}, 120_000)
