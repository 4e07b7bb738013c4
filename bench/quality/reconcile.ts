import { parseArgs } from 'node:util'
import { isJsonObject, type JsonObject } from '../../src/core/json.ts'
import { anthropic, createGateway, openaiCompatible, type GatewayOptions } from '../../src/index.ts'
import { CachingVendor, type VendorPrice } from '../../test/support/caching-vendor.ts'
import { buildBody } from '../../test/support/upstream-responses.ts'
import { withMarkers, type WireFormat } from '../../test/support/conversation-kinds.ts'
import { loadConversations, type ChatMessage } from './data.ts'
import { longChats } from './long-chat.ts'

/**
 * Compares the sum of the bills with the charge of a vendor that caches prefixes and counts four characters as a token:
 * `npx tsx bench/quality/reconcile.ts --data ../shared/data --sessions 4 --requests 40`.
 */
const { values } = parseArgs({
  options: {
    data: { type: 'string', default: '../shared/data' },
    sessions: { type: 'string', default: '4' },
    requests: { type: 'string', default: '40' },
    kind: { type: 'string' },
    level: { type: 'string' },
  },
})

/** The second measurement uses the default options, and this level if it is set. */
const LEVEL: Readonly<Record<string, string>> = values.level === undefined ? {} : { 'x-savings-level': values.level }

const MARGIN = 1.5
const INPUT = 3
const SECONDS_BETWEEN = 30
/** After each of this many requests, a pause is longer than the vendor keeps a prefix. */
const REQUESTS_BETWEEN_PAUSES = 15

const PRICES: Readonly<Record<string, VendorPrice>> = {
  'read 0.1, write 1.25': { input: INPUT, output: 15, cacheRead: 0.3, cacheWrite: 3.75 },
  'read 0.25, write 1': { input: INPUT, output: 15, cacheRead: 0.75 },
  none: { input: INPUT, output: 15, cacheRead: INPUT },
}

const CACHES: readonly { readonly name: string; readonly format: WireFormat; readonly isMarked: boolean }[] = [
  { name: 'every prefix', format: 'chat', isMarked: false },
  { name: 'marked prefixes, marked by the caller', format: 'messages', isMarked: true },
  { name: 'marked prefixes, not marked', format: 'messages', isMarked: false },
]

interface Setup {
  readonly price: VendorPrice
  readonly format: WireFormat
  readonly isMarked: boolean
  readonly options: Partial<GatewayOptions>
  readonly headers: Readonly<Record<string, string>>
}

interface Amounts {
  readonly billed: number
  readonly charge: number
  readonly withoutGateway: number
  readonly requests: number
  readonly savedTokens: number
}

async function play(session: readonly ChatMessage[], setup: Setup): Promise<Amounts> {
  const { price, format, isMarked, options, headers } = setup
  let now = Date.UTC(2026, 0, 5, 12)
  const vendor = new CachingVendor(price, () => now)
  const direct = new CachingVendor(price, () => now)
  const dialect = format === 'chat' ? 'chat' : 'messages'
  const response: typeof fetch = async (_url, init) => {
    const body: unknown = JSON.parse(String(init?.body))
    if (!isJsonObject(body)) throw new Error('The vendor received no JSON object.')
    const reply = vendor.reply({ dialect, body })
    if (typeof reply === 'string' || 'kind' in reply) throw new Error('Expected an answer with its usage.')
    return Response.json(buildBody({ index: 0, text: '', dialect, body }, reply))
  }
  const models = [{ id: 'model', family: 'test', price, contextWindowTokens: 1_000_000, maxOutputTokens: 8192 }]
  const gateway = createGateway({
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: 'http://chat.test/v1', models, fetch: response }),
      anthropic({ name: 'messages', baseUrl: 'http://messages.test', apiKey: 'k', models, fetch: response }),
    ],
    margin: MARGIN,
    runtime: { now: () => now, random: () => 0 },
    ...options,
  })
  const { id, value } = await gateway.keys.create({ name: 'bench' })
  const bodies = bodiesOf(session, format).slice(0, Number(values.requests))
  for (const [index, request] of bodies.entries()) {
    const body = { model: `${format}/model`, ...(isMarked ? withMarkers(request) : request) }
    direct.receive({ dialect, body })
    const response = await gateway.fetch(`http://gateway/v1/${format === 'chat' ? 'chat/completions' : 'messages'}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
    if (response.status !== 200) throw new Error(await response.text())
    await response.text()
    now += (index + 1) % REQUESTS_BETWEEN_PAUSES === 0 ? 600_000 : SECONDS_BETWEEN * 1000
  }
  const { cost, tokens } = await gateway.keys.usage(id)
  await gateway.close()
  return {
    billed: cost.billedUsd,
    charge: vendor.charge,
    withoutGateway: direct.charge,
    requests: bodies.length,
    savedTokens: tokens.saved,
  }
}

const SYSTEM = 'You are a careful assistant. '.repeat(200)

/** Returns one body for each response of the session. */
function bodiesOf(messages: readonly ChatMessage[], format: WireFormat): readonly JsonObject[] {
  const list: readonly unknown[] = format === 'chat' ? messages : messages.flatMap(toMessagesFormat)
  const roles = list.map((message) => (isJsonObject(message) ? message['role'] : undefined))
  const ends = [...roles.keys()].filter((at) => at > 0 && roles[at] === 'assistant' && roles[at - 1] !== 'assistant')
  return ends.map((end) => {
    const sent = JSON.parse(JSON.stringify(list.slice(0, end)))
    return format === 'chat'
      ? { max_tokens: 40, messages: [{ role: 'system', content: SYSTEM }, ...sent] }
      : { max_tokens: 40, system: [{ type: 'text', text: SYSTEM }], messages: sent }
  })
}

function toMessagesFormat({
  role,
  content,
  tool_calls: calls = [],
  tool_call_id: id,
}: ChatMessage): readonly unknown[] {
  if (role === 'system') return []
  if (role === 'tool') {
    return [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: id ?? '', content: content ?? '' }] }]
  }
  const text = content === null || content === '' ? [] : [{ type: 'text', text: content }]
  const uses = calls.map((call) => ({
    type: 'tool_use',
    id: call.id,
    name: call.function.name,
    input: inputOf(call.function.arguments),
  }))
  return text.length + uses.length === 0 ? [] : [{ role, content: [...text, ...uses] }]
}

function inputOf(json: string): unknown {
  try {
    const value: unknown = JSON.parse(json)
    return isJsonObject(value) ? value : {}
  } catch {
    return {}
  }
}

const count = Number(values.sessions)
const agents = loadConversations(values.data, 'specstory')
const KINDS = {
  agents: agents.filter((_, at) => at % Math.ceil(agents.length / count) === 0).map(({ messages }) => messages),
  chats: longChats(values.data, count).map(({ messages }) => messages),
}

console.log(
  '| traffic | prices | vendor caches | requests | off: billed / (charge × margin) | default: billed / (margin × charge without gateway) | largest of a session | shortened sessions |',
)
console.log('| --- | --- | --- | --- | --- | --- | --- | --- |')
for (const [kind, sessions] of Object.entries(KINDS)) {
  if (values.kind !== undefined && values.kind !== kind) continue
  for (const [prices, price] of Object.entries(PRICES)) {
    for (const cache of CACHES) {
      const off: Amounts[] = []
      const normal: Amounts[] = []
      for (const session of sessions) {
        const setup = { price, format: cache.format, isMarked: cache.isMarked }
        off.push(await play(session, { ...setup, options: { cache: false }, headers: { 'x-savings-level': 'off' } }))
        normal.push(await play(session, { ...setup, options: {}, headers: LEVEL }))
      }
      const sum = (list: readonly Amounts[], field: keyof Amounts): number =>
        list.reduce((total, one) => total + one[field], 0)
      const ratios = normal.map(({ billed, withoutGateway }) => billed / (withoutGateway * MARGIN))
      console.log(
        `| ${[
          kind,
          prices,
          cache.name,
          sum(off, 'requests'),
          (sum(off, 'billed') / (sum(off, 'charge') * MARGIN)).toFixed(4),
          (sum(normal, 'billed') / (sum(normal, 'withoutGateway') * MARGIN)).toFixed(4),
          Math.max(...ratios).toFixed(4),
          normal.filter(({ savedTokens }) => savedTokens > 0).length,
        ].join(' | ')} |`,
      )
    }
  }
}
