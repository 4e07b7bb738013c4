import { afterEach, describe, expect, it } from 'vitest'
import { isJsonObject, type JsonObject } from '../../../src/core/json.ts'
import type { Usage } from '../../../src/core/money.ts'
import type { Prompt } from '../../../src/core/prompt.ts'
import { chatClient } from '../../../src/formats/chat/client.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'
import {
  anthropic,
  createGateway,
  openaiCompatible,
  type ExplainedPlan,
  type Gateway,
  type GatewayOptions,
  type LoggedRequest,
  type SavingsExplanation,
} from '../../../src/index.ts'
import { createSimulatedVendor } from '../../../src/plugins/savings/simulated-vendor.ts'
import { PromptMeter, createTokenizer } from '../../../src/tokens/meter.ts'
import {
  agentConversation,
  chatConversation,
  requestsOf,
  type PlayedConversation,
  type WireFormat,
} from '../../support/conversation-kinds.ts'
import { everyNth } from '../../support/full.ts'
import { recordingStore, type RecordingStore } from '../../support/recording-store.ts'

const PRICE = { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 }
const ENTRY = { id: 'model', family: 'test', price: PRICE, contextWindowTokens: 200_000, maxOutputTokens: 1000 }
const START = Date.UTC(2026, 0, 5, 12)

const gateways: Gateway[] = []
afterEach(async () => {
  for (const gateway of gateways.splice(0)) await gateway.close()
})

interface Setting {
  readonly gateway: Gateway
  readonly store: RecordingStore
  readonly clock: { now: number }
  /** Bodies that the vendor received. */
  readonly received: JsonObject[]
  /** The output tokens of the next response. */
  readonly next: { outputTokens: number }
}

/** A gateway whose vendor caches and counts as an explanation assumes. */
function start(savings: GatewayOptions['savings'] = {}): Setting {
  const clock = { now: START }
  const received: JsonObject[] = []
  const next = { outputTokens: 0 }
  const meter = new PromptMeter(createTokenizer(), () => 0)
  const vendor = createSimulatedVendor(meter)
  const response = async (init: RequestInit | undefined, format: WireFormat): Promise<Response> => {
    const body: unknown = JSON.parse(String(init?.body))
    if (!isJsonObject(body)) throw new Error('The vendor received no JSON object.')
    received.push(body)
    const prompt: Prompt = (format === 'chat' ? chatClient : messagesClient).readPrompt(body)
    const dialect = format === 'chat' ? 'chat' : 'messages'
    const usage = await vendor.receive({ prompt, model: ENTRY, dialect, now: clock.now })
    return Response.json(replyOf(format, usage, next.outputTokens))
  }
  const fetchOf =
    (format: WireFormat): typeof fetch =>
    (_url, init) =>
      response(init, format)
  const store = recordingStore()
  const gateway: Gateway = createGateway({
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: 'http://chat.test/v1', models: [ENTRY], fetch: fetchOf('chat') }),
      anthropic({
        name: 'messages',
        baseUrl: 'http://messages.test',
        apiKey: 'k',
        models: [ENTRY],
        fetch: fetchOf('messages'),
      }),
    ],
    cache: false,
    store,
    savings,
    runtime: { now: () => clock.now, random: () => 0 },
  })
  gateways.push(gateway)
  return { gateway, store, clock, received, next }
}

function replyOf(format: WireFormat, usage: Usage, output: number): JsonObject {
  const { inputTokens, cacheReadTokens, cacheWriteTokens } = usage
  const prompt = inputTokens + cacheReadTokens + cacheWriteTokens
  if (format === 'chat') {
    return {
      id: 'c',
      object: 'chat.completion',
      created: 1,
      model: 'model',
      choices: [{ index: 0, message: { role: 'assistant', content: '' }, finish_reason: 'stop' }],
      usage: {
        prompt_tokens: prompt,
        completion_tokens: output,
        total_tokens: prompt + output,
        prompt_tokens_details: { cached_tokens: cacheReadTokens, cache_write_tokens: cacheWriteTokens },
      },
    }
  }
  return {
    id: 'm',
    type: 'message',
    role: 'assistant',
    model: 'model',
    content: [],
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: {
      input_tokens: inputTokens,
      output_tokens: output,
      cache_read_input_tokens: cacheReadTokens,
      cache_creation_input_tokens: cacheWriteTokens,
    },
  }
}

const SECONDS = 60

function bodyOf(conversation: PlayedConversation, format: WireFormat): JsonObject {
  return { model: `${format}/model`, ...requestsOf(conversation, format).at(-1) }
}

function planOf({ plans }: SavingsExplanation, name: string): ExplainedPlan {
  const plan = plans.find((candidate) => candidate.plan === name)
  if (plan === undefined) throw new Error(`There is no plan ${name} among ${plans.map(({ plan }) => plan).join(', ')}.`)
  return plan
}

const KINDS = [
  { kind: 'chat', format: 'chat', conversation: chatConversation(1, 12) },
  { kind: 'agent', format: 'chat', conversation: agentConversation(1, 12, 'chat') },
  { kind: 'chat', format: 'messages', conversation: chatConversation(2, 12) },
  { kind: 'agent', format: 'messages', conversation: agentConversation(2, 12, 'messages') },
] as const

const SETTINGS = [
  { plan: 'configured', savings: {}, headers: {} },
  { plan: 'automatic with agents', savings: { agents: true }, headers: {} },
  { plan: 'level extreme', savings: {}, headers: { 'x-savings-level': 'extreme' } },
  { plan: 'off', savings: {}, headers: { 'x-savings-level': 'off' } },
  {
    plan: 'level extreme, forced',
    savings: {},
    headers: { 'x-savings-level': 'extreme', 'x-svc-force': 'true' },
  },
  { plan: 'automatic with a floor of 0.8', savings: { agents: true, keep: 0.8 }, headers: {} },
  { plan: 'vanishing', savings: {}, headers: { 'x-vanishing-context': 'true' } },
  { plan: 'recursive', savings: {}, headers: { 'x-svc-rlm': 'true' } },
]

describe('an explanation of a conversation', () => {
  it.each(
    everyNth(
      3,
      KINDS.flatMap((kind, index) =>
        SETTINGS.slice(0, index === 0 ? SETTINGS.length : 3).map((setting) => ({ ...kind, ...setting })),
      ),
    ),
  )(
    'equals what the gateway then sends and pays: $kind, $format format, $plan with $savings',
    async ({ format, conversation, plan: name, savings, headers }) => {
      const { gateway, store, clock, received, next } = start({ summarizer: 'extractive', ...savings })
      const explanation = await gateway.savings.explain(bodyOf(conversation, format), {
        secondsBetween: SECONDS,
        plans: [name],
      })
      const plan = planOf(explanation, name)
      const { id, value } = await gateway.keys.create({ name: 'test' })
      const bodies = requestsOf(conversation, format)
      for (const [index, body] of bodies.entries()) {
        clock.now = START + index * SECONDS * 1000
        next.outputTokens = outputTokensOf(bodies[index + 1], body)
        const response = await gateway.fetch(
          `http://localhost/v1/${format === 'chat' ? 'chat/completions' : 'messages'}`,
          {
            method: 'POST',
            headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json', ...headers },
            body: JSON.stringify({ ...body, model: `${format}/model` }),
          },
        )
        expect(response.status, await response.text()).toBe(200)
      }
      await store.waitUntilSettled()
      const { tokens } = await gateway.keys.usage(id)

      expect(explanation).toMatchObject({ requests: bodies.length, sessions: 1, isTruncated: false })
      expect(received).toHaveLength(bodies.length)
      expect(plan.tokensSent).toBe(tokens.prompt)
      expect(plan.tokensReceived).toBe(tokens.prompt + tokens.saved)
      expect(plan.costNanoUsd).toBe(store.dailyTotals().actual)
    },
  )
})

/** Estimates the response to a request, which is in the next one, as the explanation does. */
function outputTokensOf(following: JsonObject | undefined, body: JsonObject): number {
  const read = (value: JsonObject) =>
    ('system' in value ? messagesClient : chatClient).readPrompt({ model: 'm', ...value }).messages
  if (following === undefined) return 0
  const added = read(following).slice(read(body).length)
  const response = added.slice(
    0,
    added.findIndex(({ role }) => role !== 'assistant'),
  )
  const texts = response.flatMap(({ parts }) =>
    parts.map((part) =>
      part.type === 'text' ? part.text : part.type === 'tool-call' ? `${part.name} ${part.input}` : '',
    ),
  )
  return createTokenizer().estimate(texts.join('\n'))
}

describe('an explanation', () => {
  it('calls no upstream and writes nothing', async () => {
    const { gateway, store, received } = start()
    const before = store.dailyTotals()
    await gateway.savings.explain(bodyOf(chatConversation(1, 8), 'chat'))

    expect(received).toEqual([])
    expect(store.dailyTotals()).toEqual(before)
    expect(gateway.metrics.summary().optimizer.requestsTotal).toBe(0)
  })

  it('recognizes the conversations in a log, and how much later their requests came', async () => {
    const { gateway } = start()
    const [first, second] = [1, 2].map((seed) => requestsOf(chatConversation(seed, 6), 'chat'))
    const log = (first ?? []).flatMap((body, index): LoggedRequest[] => {
      const at = new Date(START + index * 600_000)
      return [
        { body: { ...body, model: 'chat/model' }, at },
        { body: { ...second?.[index], model: 'chat/model' }, at: at.toISOString(), format: 'chat' },
      ]
    })
    async function* read(): AsyncGenerator<LoggedRequest> {
      yield* log
    }
    const slow = await gateway.savings.explain(read(), { plans: [] })
    const fast = await gateway.savings.explain(
      log.map(({ body }) => body),
      { plans: [] },
    )

    expect(slow).toMatchObject({ requests: 12, sessions: 2, answeredRequests: 10, isTruncated: false })
    expect(fast).toMatchObject({ requests: 12, sessions: 2, answeredRequests: 10 })
    expect(planOf(slow, 'off').costUsd).toBeGreaterThan(planOf(fast, 'off').costUsd * 1.5)
  })

  it('counts the facts of the next answer that a plan would not have sent', async () => {
    const { gateway } = start()
    const filler = (seed: number): string =>
      Array.from({ length: 900 }, (_, at) => `Pump ${at % 7} of row ${seed} is quiet today.`).join(' ')
    const messages = [
      { role: 'user', content: `${filler(1)} Remember the code QX-4711-ZULU for the cellar.` },
      ...[2, 3, 4].flatMap((seed) => [
        { role: 'assistant', content: 'Noted.' },
        { role: 'user', content: `${filler(seed)} How is row ${seed}?` },
      ]),
      { role: 'assistant', content: 'All rows are quiet. By the way, QX-4711-ZULU is still valid.' },
      { role: 'user', content: 'Thanks.' },
    ]
    const explanation = await gateway.savings.explain(
      { model: 'chat/model', max_tokens: 40, messages },
      { plans: ['level extreme', { name: 'own', headers: { 'X-Savings-Level': 'max' } }] },
    )

    expect(planOf(explanation, 'off')).toMatchObject({ lostFacts: 0, keptShare: 1, costShare: 1, dearerRequests: 0 })
    expect(planOf(explanation, 'off').facts).toBeGreaterThan(0)
    const extreme = planOf(explanation, 'level extreme')
    expect(extreme.facts).toBe(planOf(explanation, 'off').facts)
    expect(extreme.rewrittenRequests).toBeGreaterThan(0)
    expect(explanation.plans.map(({ plan }) => plan)).toEqual(['off', 'level extreme', 'own'])
    expect(planOf(explanation, 'own').tokensSent).toBeGreaterThan(extreme.tokensSent)
  })

  it('has a plan per level and header, also forced, and per floor', async () => {
    const { gateway } = start()
    const { plans } = await gateway.savings.explain(bodyOf(chatConversation(1, 2), 'chat'))

    expect(plans.map(({ plan }) => plan)).toEqual([
      'off',
      'markers',
      'configured',
      ...['min', 'med', 'max', 'extreme'].flatMap((level) => [`level ${level}`, `level ${level}, forced`]),
      'vanishing',
      'vanishing, forced',
      'recursive',
      'recursive, forced',
      'family',
      'automatic',
      'automatic with agents',
      'automatic with a floor of 0.9',
      'automatic with a floor of 0.8',
      'automatic without a floor',
    ])
  })

  it('shows what a level would do in a warm conversation only for a forced plan', async () => {
    const { gateway } = start({ summarizer: 'extractive' })
    const explanation = await gateway.savings.explain(bodyOf(chatConversation(1, 12), 'chat'), {
      secondsBetween: SECONDS,
      plans: ['level extreme', 'level extreme, forced'],
    })
    const forced = planOf(explanation, 'level extreme, forced')
    const unforced = planOf(explanation, 'level extreme')

    expect(unforced.dearerSessions).toBe(0)
    expect(forced.dearerSessions).toBe(1)
    expect(forced.tokensSent).toBeLessThan(unforced.tokensSent)
  })

  it('shows what each floor sends', async () => {
    const { gateway } = start({ summarizer: 'extractive' })
    const facts = Array.from({ length: 300 }, (_, at) => `Pump ${at} of row ${at % 17} is quiet today.`)
    const messages = [
      ...Array.from({ length: 30 }, (_, at) => ({ role: 'user', content: `Report ${at}. ${facts.join(' ')}` })),
      { role: 'user', content: 'How is pump 17 of report 4?' },
    ]
    const floors = ['automatic with a floor of 0.9', 'automatic with a floor of 0.8', 'automatic without a floor']
    const explanation = await gateway.savings.explain([{ model: 'chat/model', messages }], { plans: floors })
    const [off = 0, ...sent] = explanation.plans.map(({ tokensSent }) => tokensSent)

    expect(sent[0]).toBeLessThan(off)
    expect(sent).toEqual([...new Set(sent)].toSorted((a, b) => b - a))
  })

  it('keeps at most 1,000 conversations open', async () => {
    const { gateway } = start()
    const bodyWith = (...contents: readonly string[]): JsonObject => ({
      model: 'chat/model',
      messages: contents.map((content, index) => ({ role: index % 2 === 0 ? 'user' : 'assistant', content })),
    })
    const others = (count: number) => Array.from({ length: count }, (_, index) => bodyWith(`Question ${index}?`))
    const continued = bodyWith('First?', 'Yes.', 'Second?')
    const sessionsWith = async (count: number): Promise<number> => {
      const log = [bodyWith('First?'), ...others(count), continued]
      return (await gateway.savings.explain(log, { plans: [], maxRequests: 2000 })).sessions
    }

    expect(await sessionsWith(999)).toBe(1000)
    expect(await sessionsWith(1000)).toBe(1002)
  })

  it('explains a conversation in the responses format', async () => {
    const { gateway } = start()
    const text = chatConversation(1, 3).messages
    const explanation = await gateway.savings.explain(
      { model: 'chat/model', input: text, instructions: 'Be brief.' },
      { plans: [] },
    )

    expect(explanation).toMatchObject({ requests: 3, sessions: 1, answeredRequests: 2 })
  })

  it('stops at the maximum number of requests, and for a signal', async () => {
    const { gateway } = start()
    const body = bodyOf(chatConversation(1, 4), 'chat')
    const controller = new AbortController()
    controller.abort(new Error('Enough.'))

    expect(await gateway.savings.explain(body, { plans: [], maxRequests: 2 })).toMatchObject({
      requests: 2,
      isTruncated: true,
    })
    expect(await gateway.savings.explain(body, { plans: [], maxRequests: 4 })).toMatchObject({
      requests: 4,
      isTruncated: false,
    })
    await expect(gateway.savings.explain(body, { signal: controller.signal })).rejects.toThrow('Enough.')
  })

  const body = { model: 'chat/model', messages: [{ role: 'user', content: 'Hello?' }] }
  const invalid: readonly (readonly [unknown, string])[] = [
    [7, 'input'],
    [[7], 'log[0]'],
    [[body, { body: 7 }], 'log[1].body'],
    [[{ body, at: 'yesterday' }], 'log[0].at'],
    [[{ body, when: 1 }], 'log[0].when'],
    [[{ body, format: 'gemini' }], 'log[0].format'],
    [
      [
        { body, at: START },
        { body, at: START - 1 },
      ],
      'log[1].at',
    ],
    [[body, { body: { ...body, messages: [{ role: 'king', content: 'x' }] } }], 'log[1].body.messages[0].role'],
    [[{ ...body, model: 'chat/unknown model' }], 'log[0].model'],
    [[{ messages: body.messages }], 'log[0].model'],
  ]
  it.each(invalid)('of %j rejects with the path %s', async (input, param) => {
    const { gateway } = start()

    await expect(gateway.savings.explain(input as never)).rejects.toMatchObject({
      kind: expect.stringMatching(/invalid/),
      details: { param },
      message: expect.stringContaining(param),
    })
  })

  it.each([
    [{ plans: ['cheap'] }, 'plans[0]'],
    [{ plans: [{ name: 'own', savings: { agents: 7 } }] }, 'plans[0].savings.agents'],
    [{ plans: [{ name: 'own', headers: { 'X-Savings-Level': 'most' } }] }, 'X-Savings-Level'],
    [{ plans: Array.from({ length: 51 }, () => 'off') }, 'plans'],
    [{ plan: ['off'] }, 'plan'],
    [{ maxRequests: 0 }, 'maxRequests'],
  ])('with the options %j rejects with the path %s', async (options, param) => {
    const { gateway } = start()

    await expect(gateway.savings.explain(body, options as never)).rejects.toMatchObject({ details: { param } })
  })
})
