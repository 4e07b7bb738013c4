import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { asArray, asObject, type JsonObject } from '../../src/core/json.ts'
import { anthropic, createGateway, memoryStore, openai, type Gateway, type GatewayOptions } from '../../src/index.ts'
import { PromptMeter, createTokenizer } from '../../src/tokens/meter.ts'
import { everyNth, IS_FULL } from '../support/full.ts'
import { chatFormat, messagesFormat, responsesFormat } from '../support/two-way-formats.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'
import { violationsOf } from '../support/vendor-rules/index.ts'
import { markerViolations } from '../support/vendor-rules/messages.ts'
import { longSession, recordedSessions, type RecordedSession } from './recorder/recorded.ts'
import { responseReply } from './recorder/vendor.ts'

const FORMATS = { chat: chatFormat, messages: messagesFormat, responses: responsesFormat } as const
const SESSIONS = recordedSessions().map((session) => [session.client, session] as const)
const isMarked = ({ body }: RecordedSession): boolean => JSON.stringify(body).includes('"cache_control"')
const meter = new PromptMeter(createTokenizer())

/** Returns how often the turns of a session are repeated until it has about this many tokens. */
function repeatsFor(session: RecordedSession, tokens: number): number {
  const sizeOf = (repeats: number): number =>
    meter.estimatePrompt(FORMATS[session.dialect].readPrompt(longSession(session, repeats).at(-1) ?? {}))
  const [none, one] = [sizeOf(1), sizeOf(3)]
  return Math.max(1, 1 + Math.ceil(((tokens - none) * 2) / (one - none)))
}

const TERMS = { terms: ['harbour', 'ledger'], names: [] }
const SUMMARY = `Facts and values: the harbour has ledger-12.ts and 42 orchards. ${JSON.stringify(TERMS)}`

let upstream: Upstream
let now = Date.UTC(2026, 0, 5, 12)
const gateways: Gateway[] = []
beforeAll(async () => {
  upstream = await startUpstream({
    reply: (request) => (request.path.includes('/responses') ? responseReply(request, SUMMARY) : { text: SUMMARY }),
  })
})
afterAll(async () => {
  for (const gateway of gateways) await gateway.close()
  await upstream.close()
})

type Send = (session: RecordedSession, body: JsonObject) => Promise<Sent>

interface Sent {
  readonly strategy: string
  readonly violations: readonly string[]
}

async function startGateway(
  savings: NonNullable<GatewayOptions['savings']>,
  headers: Readonly<Record<string, string>>,
): Promise<Send> {
  const gateway = createGateway({
    providers: [
      openai({ apiKey: 'sk-vendor', baseUrl: upstream.baseUrl }),
      anthropic({ apiKey: 'sk-vendor', baseUrl: upstream.url }),
    ],
    store: memoryStore(),
    cache: false,
    runtime: { now: () => now, random: () => 0 },
    savings,
  })
  gateways.push(gateway)
  const { value } = await gateway.keys.create({ name: 'test' })
  return async (session, body) => {
    const text = asPython(body)
    const response = await gateway.fetch(`http://gateway${session.path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json', ...headers },
      body: text,
    })
    const replied = await response.text()
    expect(response.status, replied).toBe(200)
    now += 20_000
    const sent = upstream.requests.findLast((request) => request.body['model'] === body['model'])
    if (sent === undefined) throw new Error('Nothing was sent.')
    const received = isMarked(session) ? sent.body : withoutMarkers(sent.body, body)
    return {
      strategy: response.headers.get('x-svc-strategy') ?? '',
      violations: [
        ...violationsOf[session.dialect](withoutForeignIds(session, body), received),
        ...markerViolations(sent.body),
        ...(['tools', 'tool_choice'] as const)
          .filter(
            (name) =>
              body[name] !== undefined &&
              !sent.text.includes(
                asPython({ [name]: body[name] })
                  .slice(1, -1)
                  .trim(),
              ),
          )
          .map((name) => `the bytes of ${name} are changed`),
      ],
    }
  }
}

/** JSON as Python writes it: with spaces and escapes that `JSON.stringify` does not write. */
function asPython(body: JsonObject): string {
  const spaced = JSON.stringify(body, undefined, 1).replaceAll(/\n */g, ' ')
  return spaced.replaceAll(/[^ -~]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** Without the markers that the gateway has set. A marked text is a block instead of a string. */
function withoutMarkers(body: JsonObject, received: JsonObject): JsonObject {
  const text = JSON.stringify(body, (name, value: unknown) => (name === 'cache_control' ? undefined : value))
  const sent = JSON.parse(text) as JsonObject
  const { system } = received
  const isSame =
    typeof system === 'string' && JSON.stringify(sent['system']) === JSON.stringify([{ type: 'text', text: system }])
  return isSame ? { ...sent, system } : sent
}

/** The gateway removes the ids of items that the vendor may store, and that it did not return to this key. */
function withoutForeignIds({ dialect }: RecordedSession, body: JsonObject): JsonObject {
  if (dialect !== 'responses' || body['store'] === false) return body
  const input = asArray(body['input']).map((item) => {
    const { id: _, ...others } = asObject(item) ?? {}
    return others
  })
  return { ...body, input }
}

/** Sends the last request of a long session, cold, and then the requests of the next turn and of the end of one more, warm. */
async function play(session: RecordedSession, tokens: number, send: Send): Promise<readonly Sent[]> {
  const repeats = repeatsFor(session, tokens)
  const requests = [0, 1, 2].flatMap((more) => longSession(session, repeats + more).slice(more === 1 ? 0 : -1))
  const sent: Sent[] = []
  for (const body of requests) sent.push(await send(session, body))
  now += 600_000
  return sent
}

function expectValid(sent: readonly Sent[]): void {
  expect(sent.flatMap(({ violations }) => violations).join('\n')).toBe('')
}

const isRewritten = ({ strategy }: Sent): boolean => !strategy.startsWith('Passthrough')

interface Way {
  readonly name: string
  readonly tokens: number
  readonly savings?: Exclude<GatewayOptions['savings'], false | undefined>
  readonly headers?: Readonly<Record<string, string>>
}

const automatic = { agents: true, keep: 0 }
const VANISHING: Way = { name: 'vanishing context', tokens: 52_000, headers: { 'x-vanishing-context': 'true' } }
const SUMMARIES: Way = { name: 'recursive summaries', tokens: 52_000, headers: { 'x-svc-rlm': 'true' } }
const AGENTS: readonly Way[] = [
  { name: 'savings.agents', tokens: 52_000, savings: { agents: true } },
  { name: 'extreme', tokens: 24_000, headers: { 'x-savings-level': 'extreme' } },
]
const LONG: Way = { name: 'savings.agents without a floor', tokens: 85_000, savings: automatic }
const ALL: readonly Way[] = [...AGENTS, VANISHING, SUMMARIES, LONG]
const OTHERS: readonly Way[] = [
  { name: 'savings.agents without a floor', tokens: 21_500, savings: automatic },
  { name: 'savings.agents without a floor', tokens: 52_000, savings: automatic },
  { name: 'max', tokens: 45_000, headers: { 'x-savings-level': 'max' } },
  { name: 'med', tokens: 80_000, headers: { 'x-savings-level': 'med' } },
  { name: 'min', tokens: 140_000, headers: { 'x-savings-level': 'min' } },
]

/** Long sessions take seconds each, so a setting that needs them runs for a part of the sessions. */
function waysOf(index: number): readonly Way[] {
  if (!IS_FULL) return ALL.filter((_, at) => at === index % ALL.length || at === (index + 2) % ALL.length)
  const [tiers, long] = [index % 2 === 0 ? VANISHING : SUMMARIES, index % 4 === 0 ? [LONG] : []]
  return [...AGENTS, tiers, ...long, ...(index % 8 === 0 ? [SUMMARIES, ...OTHERS] : [])]
}

describe.each(everyNth(7, SESSIONS))('a session of %s', (client, session) => {
  it('is sent as received by default, cold and warm', async () => {
    const sent = await play(session, 52_000, await startGateway({}, {}))
    expectValid(sent)
    expect(sent.filter(isRewritten)).toEqual([])
  })

  it.each(waysOf(SESSIONS.findIndex(([name]) => name === client)))(
    'follows the rules of the vendor with $name, at $tokens tokens',
    async ({ tokens, savings, headers }) => {
      const isAutomatic = headers === undefined
      for (const force of isAutomatic ? ['false'] : tokens < 40_000 ? ['false', 'true'] : ['true']) {
        const send = await startGateway(savings ?? {}, { ...headers, 'x-svc-force': force })
        const sent = await play(session, tokens, send)
        expectValid(sent)
        // A prefix that the caller marked is not rewritten without a header, and by default, no tier keeps enough.
        const isExpected = tokens >= 24_000 && (isAutomatic ? savings?.keep === 0 && !isMarked(session) : true)
        if (isExpected) expect(sent.some(isRewritten)).toBe(true)
        if (isAutomatic && isMarked(session)) expect(sent.some(isRewritten)).toBe(false)
      }
    },
  )
})
