/** @own-process: sends up to 1,000 requests at once. */
import { afterEach, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible, type LogRecord } from '../../src/index.ts'
import { PATIENT } from '../support/fleet/jobs.ts'
import { IS_FULL } from '../support/full.ts'
import { sendRequest, type Reply } from '../support/send-request.ts'
import { honestReply } from '../support/honest-vendor.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { limitCheckingStore } from '../support/limit-checking-store.ts'
import { HANG, startUpstream, type UpstreamRequest, type Upstream } from '../support/upstream.ts'
import { eventsUntilText } from '../support/upstream-events.ts'

const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)
const BUDGET_CENTS = 100
const BUDGET = BUDGET_CENTS * 10_000_000
const STORM = IS_FULL ? 1000 : 400
const PRICE = { input: 1, output: 2 }
const CHAT = 'chat/large'
const EXACT = 'o200k/large'
const MESSAGE = 'anthropic/large'

let stage: Stage | undefined
let upstream: Upstream | undefined
afterEach(async () => {
  await stage?.close()
  await upstream?.close()
})

/** Texts of about 3,000 characters that have more tokens than prose. */
const TEXTS: readonly string[] = [
  String.fromCodePoint(...Array.from({ length: 3000 }, (_, at) => 0x13a0 + (at % 80))),
  String.fromCodePoint(...Array.from({ length: 3000 }, (_, at) => 0x300 + ((at * 37) % 0x1cff))),
  '\t\u000b\u000c'.repeat(1000),
  String.fromCodePoint(...Array.from({ length: 3000 }, (_, at) => 0x250 + (at % 96))),
  Array.from({ length: 3000 }, (_, at) => ((at * at) % 7 < 3 ? 'qXzW'[at % 4] : 'kVbJ'.toLowerCase()[at % 4])).join(''),
  '1234567890'.repeat(300),
]
const textOf = (number: number): string => `${number} ${TEXTS[number % TEXTS.length]}`

interface Attack {
  readonly path: string
  readonly body: JsonObject
}

const chat = (body: JsonObject): Attack => ({ path: '/v1/chat/completions', body: { max_tokens: 40, ...body } })
const message = (body: JsonObject): Attack => ({ path: '/v1/messages', body: { max_tokens: 40, ...body } })
const says = (content: unknown): JsonObject['messages'] => [{ role: 'user', content }] as JsonObject['messages']
const schemaOf = (description: string): JsonObject => ({
  type: 'object',
  properties: { a: { type: 'string', description } },
})

/** Requests whose prompt has more tokens at the vendor than a careless gateway reserves. */
const ATTACKS: readonly ((text: string, model: string) => Attack)[] = [
  (text, model) => chat({ model, messages: says(text) }),
  (text) => message({ model: MESSAGE, messages: says(text) }),
  (text, model) => message({ model, messages: says(text) }),
  (text, model) =>
    chat({
      model,
      messages: says('Hello?'),
      response_format: { type: 'json_schema', json_schema: { name: 'a', schema: schemaOf(text) } },
    }),
  (text, model) => chat({ model, messages: says('Hello?'), prediction: { type: 'content', content: text } }),
  (text, model) =>
    chat({
      model,
      messages: [
        { role: 'assistant', content: 'Hm.', reasoning_content: text },
        { role: 'user', content: 'Hello?' },
      ],
    }),
  (text, model) =>
    chat({
      model,
      messages: says('Hello?'),
      tools: [{ type: 'function', function: { name: 'look_up', parameters: schemaOf(text) } }],
    }),
  (text, model) => chat({ model, messages: says('Hello?'), some_field: { of: [text] } }),
  (text) => ({
    path: '/v1/responses',
    body: {
      model: MESSAGE,
      max_output_tokens: 40,
      input: 'Hello?',
      text: { format: { type: 'json_schema', name: 'a', schema: schemaOf(text) } },
    },
  }),
  (text) => ({ path: '/v1/embeddings', body: { model: 'chat/vectors', input: [text, text] } }),
  () =>
    message({ model: MESSAGE, messages: says('Hello?'), tools: [{ type: 'web_search_20250305', name: 'web_search' }] }),
  () =>
    message({
      model: MESSAGE,
      messages: says('Hello?'),
      mcp_servers: [{ type: 'url', url: 'https://mcp.example', name: 'm' }],
    }),
  () =>
    message({
      model: MESSAGE,
      messages: says([
        { type: 'document', source: { type: 'url', url: 'https://pages.example/book.pdf' } },
        { type: 'text', text: 'What is it about?' },
      ]),
    }),
  (_, model) =>
    chat({ model, messages: says([{ type: 'image_url', image_url: { url: 'https://pages.example/wall.png' } }]) }),
  (_, model) => chat({ model, messages: says('Hello?'), enable_search: true }),
]

/** The caller of every seventh request disconnects after the first word; every third request is a stream. */
const isDisconnecting = (number: number): boolean => number % 7 === 0
const isStream = (number: number): boolean => number % 3 === 0 || isDisconnecting(number)

const controllers = new Map<string, AbortController>()

function reply(request: UpstreamRequest): ReturnType<Upstream['reply']> {
  const user = JSON.stringify(request.body['user'] ?? request.body['metadata'] ?? '')
  const controller = controllers.get(/left-\d+/.exec(user)?.[0] ?? '')
  if (controller === undefined || !request.stream) return honestReply(request)
  const leave = (): void => controller.abort()
  return { kind: 'events', items: [...eventsUntilText(request.dialect), new Promise(setImmediate).then(leave), HANG] }
}

/** Adds the field by which the upstream identifies a caller that disconnects. */
function userField(path: string, mark: string): JsonObject {
  return path === '/v1/messages' ? { metadata: { user_id: mark } } : { user: mark }
}

async function attack(at: Stage, number: number): Promise<Reply | undefined> {
  const make = ATTACKS[number % ATTACKS.length] ?? ATTACKS[0]
  const made = make?.(textOf(number), number % 2 === 0 ? CHAT : EXACT)
  if (made === undefined) return undefined
  const canStream = made.path !== '/v1/embeddings'
  const controller = new AbortController()
  if (isDisconnecting(number)) controllers.set(`left-${number}`, controller)
  const mark = isDisconnecting(number) ? userField(made.path, `left-${number}`) : {}
  const body = { ...made.body, ...mark, ...(canStream && isStream(number) && { stream: true }) }
  return sendRequest(at, body, { path: made.path, signal: controller.signal }).catch(() => undefined)
}

it(`${STORM} concurrent attacks are billed at most the budget, and all usage that the vendor reported`, async () => {
  const store = limitCheckingStore(() => NOON)
  const vendor = (upstream = await startUpstream({ reply }))
  const log: LogRecord[] = []
  const model = { id: 'large', price: PRICE, contextWindowTokens: 200_000, maxOutputTokens: 1000 }
  const at = (stage = await startStage({
    store,
    margin: 1,
    log: (record) => void log.push(record),
    ...PATIENT,
    runtime: { now: () => NOON, random: () => 0 },
    key: { name: 'hostile', budget_limit_cents: BUDGET_CENTS, rate_limit_requests: 1_000_000 },
    providers: [
      openaiCompatible({
        name: 'chat',
        baseUrl: vendor.baseUrl,
        models: [model, { id: 'vectors', kind: 'embedding', price: { input: 1, output: 0 } }],
      }),
      openaiCompatible({
        name: 'o200k',
        baseUrl: `${vendor.url}/o200k/v1`,
        models: [{ ...model, tokenizer: 'o200k' }],
      }),
      anthropic({ baseUrl: vendor.url, apiKey: 'k', models: [model] }),
    ],
  }))

  const batch = at.anthropic.messages.batches.create({
    requests: Array.from({ length: 20 }, (_, index) => ({
      custom_id: `item-${index}`,
      params: { model: MESSAGE, max_tokens: 40, messages: [{ role: 'user', content: textOf(index) }] },
    })),
  })
  const replies = await Promise.all(Array.from({ length: STORM }, (_, number) => attack(at, number)))
  await batch
  // Few requests fit at once, so the rest of the budget is spent in waves.
  for (let wave = 0; wave < 8; wave++) {
    await store.waitUntilSettled()
    replies.push(...(await Promise.all(ATTACKS.map((_, index) => attack(at, 1001 + wave * 15 + index)))))
  }
  await at.gateway.batches.work()
  await store.waitUntilSettled()

  const statuses = new Set(replies.map((reply) => reply?.status))
  expect([...statuses].filter((status) => status !== undefined && ![200, 402].includes(status))).toEqual([])
  expect(statuses).toContain(402)
  expect(replies.filter((reply) => reply?.status === 200).length).toBeGreaterThan(30)
  expect(store.violations).toEqual([])
  expect(await store.maxHeld()).toBe(0)
  const spent = await store.spent('budget')
  expect(spent).toBeLessThanOrEqual(BUDGET)
  expect(spent).toBeGreaterThan(BUDGET / 2)
  // The reservation covered all usage: nothing that the vendor reported was clamped.
  expect(log.filter(({ event }) => String(event).includes('the excess is not billed'))).toEqual([])
}, 120_000)
