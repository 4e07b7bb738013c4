import { afterEach, describe, expect, it } from 'vitest'
import { createMarkedCache } from '../../../bench/quality/marked-cache.ts'
import { asArray, asObject, type Json, type JsonObject } from '../../../src/core/json.ts'
import { costOf, promptTokens, NO_USAGE } from '../../../src/core/money.ts'
import type { Message, Prompt } from '../../../src/core/prompt.ts'
import { anthropic, openaiCompatible } from '../../../src/index.ts'
import { createMemory } from '../../../src/plugins/savings/memory.ts'
import { createDryRun } from '../../../src/plugins/savings/dry-run.ts'
import { markForCache } from '../../../src/plugins/savings/prompt-cache.ts'
import { manualRuntime } from '../../support/manual-runtime.ts'
import { noNetwork } from '../../support/no-network.ts'
import { cases, fc } from '../../support/properties.ts'
import { sendRequest, CHAT, MESSAGE } from '../../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../../support/stage.ts'
import { startUpstream, type Upstream } from '../../support/upstream.ts'
import { MODEL, meter } from './bench.ts'
import { prose, text } from './conversation.ts'

const PRICE = { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 }
const CACHED = { ...MODEL, id: 'claude-sonnet-4-5', price: PRICE }
const START = 1_700_000_000_000

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

function promptOf(messages: readonly Message[]): Prompt {
  const native = { dialect: 'messages', value: {} } as const
  return { native, model: 'm', messages, settings: {}, tools: [], stream: false }
}

interface Turn {
  /** Number of words that the turn adds. */
  readonly words: number
  readonly secondsBefore: number
}

const turn: fc.Arbitrary<Turn> = fc.record({
  words: fc.oneof(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 500, max: 4000 })),
  secondsBefore: fc.oneof(fc.integer({ min: 1, max: 299 }), fc.integer({ min: 301, max: 4000 })),
})

/** Returns the cost of a conversation with and without markers, and its most expensive cache write. */
async function play(
  turns: readonly Turn[],
  forgets: readonly boolean[],
): Promise<Record<'paid' | 'plain' | 'write', number>> {
  const memory = createMemory({ store: { get: () => undefined, set: async () => {} }, now: () => START })
  let vendor = createMarkedCache()
  let messages: readonly Message[] = []
  let now = START
  const sums = { paid: 0, plain: 0, write: 0 }
  for (const [at, { words, secondsBefore }] of turns.entries()) {
    now += secondsBefore * 1000
    messages = [...messages, ...(at === 0 ? [] : [assistant(`Answer ${at}.`)]), user(`${at} ${prose(at, words)}`)]
    const prompt = promptOf(messages)
    const marked = await markForCache(memory, {
      prompt,
      model: CACHED,
      tokens: meter.estimatePrompt(prompt),
      owner: 'k',
      now,
    })
    // A vendor may lose cached prefixes before they expire.
    if (forgets[at] === true) vendor = createMarkedCache()
    const usage = vendor.usageOf(marked?.prompt ?? prompt, now)
    await marked?.report(usage)
    const tokens = promptTokens(usage)
    sums.paid += costOf(usage, PRICE)
    sums.plain += costOf({ ...NO_USAGE, inputTokens: tokens }, PRICE)
    sums.write = Math.max(sums.write, costOf({ ...NO_USAGE, cacheWriteTokens: tokens }, PRICE))
  }
  return sums
}

describe('the cost of a conversation with markers', () => {
  it('is at most the cost without them and one write, whenever it pauses and ends', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(turn, { minLength: 1, maxLength: 25 }), async (turns) => {
        const { paid, plain, write } = await play(turns, [])
        expect(paid).toBeLessThanOrEqual(plain + write)
      }),
      { numRuns: cases(200) },
    )
  })

  it('is at most the cost without them and one write if the vendor loses its cache', async () => {
    const forgets = fc.array(fc.boolean(), { maxLength: 25 })
    await fc.assert(
      fc.asyncProperty(fc.array(turn, { minLength: 1, maxLength: 25 }), forgets, async (turns, lost) => {
        const { paid, plain, write } = await play(turns, lost)
        expect(paid).toBeLessThanOrEqual(plain + write)
      }),
      { numRuns: cases(200) },
    )
  })

  it('is at most the cost without them and one write if the vendor loses its cache on every turn', async () => {
    const turns = Array.from({ length: 25 }, () => ({ words: 1000, secondsBefore: 30 }))
    const { paid, plain, write } = await play(turns, Array<boolean>(25).fill(true))

    expect(paid).toBeGreaterThan(plain)
    expect(paid).toBeLessThanOrEqual(plain + write)
  })

  it('is a fifth for a long conversation without pauses', async () => {
    const turns = Array.from({ length: 30 }, () => ({ words: 1000, secondsBefore: 30 }))
    const { paid, plain } = await play(turns, [])

    expect(paid / plain).toBeLessThan(0.25)
  })
})

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

/** A gateway whose vendor of the message format bills cached prefixes by markers. */
async function start(options: StageOptions & { readonly models?: 'both' } = {}): Promise<Stage> {
  const vendor: Upstream = await startUpstream()
  const models = [{ id: 'large', price: PRICE, contextWindowTokens: 200_000, maxOutputTokens: 1000 }]
  const stage = await startStage({
    providers: [
      anthropic({ baseUrl: vendor.url, apiKey: 'sk-upstream-secret', models }),
      openaiCompatible({ name: 'chat', baseUrl: vendor.baseUrl, apiKey: 'sk-upstream-secret', models }),
    ],
    ...options,
  })
  closing.push(stage.close, vendor.close)
  return { ...stage, upstream: vendor }
}

const LONG = prose(1, 6000)

const firstTurn = { system: LONG, messages: [{ role: 'user', content: 'First?' }] }
const secondTurn = {
  system: LONG,
  messages: [...firstTurn.messages, { role: 'assistant', content: 'One.' }, { role: 'user', content: 'Second?' }],
}
const thirdTurn = {
  system: LONG,
  messages: [...secondTurn.messages, { role: 'assistant', content: 'Two.' }, { role: 'user', content: 'Third?' }],
}

const message = (body: JsonObject): JsonObject => ({ model: 'anthropic/large', max_tokens: 20, ...body })
const chat = ({ system, messages }: typeof firstTurn): JsonObject => ({
  model: 'anthropic/large',
  max_tokens: 20,
  messages: [{ role: 'system', content: system }, ...messages],
})

const markersIn = (value: Json | undefined): number => JSON.stringify(value ?? null).split('"cache_control"').length - 1

describe('savings.promptCache', () => {
  it('marks the system text and the ends of two turns, from the second turn on', async () => {
    const stage = await start()
    for (const body of [firstTurn, secondTurn, thirdTurn])
      await sendRequest(stage, message(body), { path: MESSAGE.path })

    const [first, second, third] = stage.upstream.requests.map(({ body }) => body)
    expect(first).toEqual({ ...message(firstTurn), model: 'large' })
    expect(markersIn(second)).toBe(3)
    expect(markersIn(third)).toBe(3)
    const marker = { cache_control: { type: 'ephemeral' } }
    expect(third?.['system']).toEqual([{ type: 'text', text: LONG, ...marker }])
    expect(asArray(third?.['messages']).map((one) => markersIn(one))).toEqual([0, 0, 1, 0, 1])
    expect(asObject(asArray(third?.['messages'])[4])).toEqual({
      role: 'user',
      content: [{ type: 'text', text: 'Third?', ...marker }],
    })
  })

  it('marks prompts in the chat format, including tool results', async () => {
    const stage = await start()
    const called = {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } }],
    }
    const tools = [{ type: 'function', function: { name: 'look', parameters: { type: 'object' } } }]
    const body = chat(secondTurn)
    const result = { role: 'tool', tool_call_id: 'call_1', content: 'Seen.' }
    await sendRequest(stage, { ...body, tools })
    await sendRequest(stage, { ...body, tools, messages: [...asArray(body['messages']), called, result] })

    const sent = asArray(stage.upstream.last.body['messages'])
    expect(markersIn(stage.upstream.last.body)).toBe(3)
    expect(JSON.stringify(sent.at(-1))).toContain('"text":"Seen.","cache_control":{"type":"ephemeral"}')
  })

  it.each<[string, JsonObject]>([
    ['in the system text', { system: [{ type: 'text', text: LONG, cache_control: { type: 'ephemeral' } }] }],
    ['on the whole request', { cache_control: { type: 'ephemeral' } }],
    [
      'on a tool',
      { tools: [{ name: 'look', input_schema: { type: 'object' }, cache_control: { type: 'ephemeral' } }] },
    ],
  ])('does not mark a prompt that the caller marked %s', async (_, marked) => {
    const stage = await start()
    for (const body of [firstTurn, secondTurn])
      await sendRequest(stage, message({ ...body, ...marked }), { path: MESSAGE.path })

    expect(stage.upstream.last.body).toEqual({ ...message({ ...secondTurn, ...marked }), model: 'large' })
  })

  it.each<[string, StageOptions, JsonObject]>([
    ['it is switched off', { savings: { promptCache: false } }, { system: LONG }],
    ['the prompt is shorter than what the vendor caches', {}, { system: 'Be brief.' }],
  ])('places no markers if %s', async (_, options, shared) => {
    const stage = await start(options)
    for (const body of [firstTurn, secondTurn])
      await sendRequest(stage, message({ ...body, ...shared }), { path: MESSAGE.path })

    expect(markersIn(stage.upstream.last.body)).toBe(0)
  })

  it('places no markers for a vendor of another format', async () => {
    const stage = await start()
    for (const body of [firstTurn, secondTurn])
      await sendRequest(stage, { ...chat(body), model: 'chat/large' }, { path: CHAT.path })

    expect(markersIn(stage.upstream.last.body)).toBe(0)
  })

  it('places no markers if the turns are further apart than the lifetime of the cache', async () => {
    let now = START
    const stage = await start({ runtime: { now: () => now, random: () => 0 } })
    for (const body of [firstTurn, secondTurn]) {
      await sendRequest(stage, message(body), { path: MESSAGE.path })
      now += 301_000
    }

    expect(markersIn(stage.upstream.last.body)).toBe(0)
  })

  it('does not continue the conversation of another key', async () => {
    const stage = await start()
    const { value: secret } = await stage.gateway.keys.create({ name: 'other' })
    await sendRequest(stage, message(firstTurn), { path: MESSAGE.path })
    await sendRequest(stage, message(secondTurn), { path: MESSAGE.path, secret })

    expect(markersIn(stage.upstream.last.body)).toBe(0)
  })

  it('bills the list price and reports the price of writing as the actual cost', async () => {
    const stage = await start({ margin: 2 })
    stage.upstream.reply = () => ({
      text: 'Yes.',
      usage: { input_tokens: 0, cache_creation_input_tokens: 10_000, cache_read_input_tokens: 0, output_tokens: 2 },
    })
    for (const body of [firstTurn, secondTurn]) await sendRequest(stage, message(body), { path: MESSAGE.path })
    const reply = await sendRequest(stage, message(thirdTurn), { path: MESSAGE.path })

    expect(reply.headers['x-svc-theoretical-cost']).toBe('$0.030030')
    expect(reply.headers['x-svc-actual-cost']).toBe('$0.037530')
    expect(reply.headers['x-svc-billed-amount']).toBe('$0.060060')
  })

  it('is explained, and an explanation stores nothing', async () => {
    const stage = await start()
    const explain = { path: MESSAGE.path, headers: { 'x-svc-explain': 'true' } }
    await sendRequest(stage, message(firstTurn), explain)
    expect((await sendRequest(stage, message(secondTurn), explain)).body['prompt_cache']).toEqual({ markers: 0 })
    await sendRequest(stage, message(firstTurn), { path: MESSAGE.path })
    expect((await sendRequest(stage, message(secondTurn), explain)).body['prompt_cache']).toEqual({ markers: 3 })
  })
})

describe('the block of a shortened prompt', () => {
  it('is not marked, because the next turn replaces it', async () => {
    const memory = createMemory({ store: { get: () => undefined, set: async () => {} }, now: () => START })
    const block = user('[Earlier parts of this conversation that may matter for the next message:]\n\nuser: hello')
    const first = [user(prose(1, 3000)), assistant('Yes.')]
    const shortened = [...first, block, assistant('[…]'), user('Why?')]
    const request = { model: CACHED, tokens: 6000, owner: 'k', now: START }
    await markForCache(memory, { ...request, prompt: promptOf(first.slice(0, 1)) })
    const marked = await markForCache(memory, { ...request, prompt: promptOf(shortened) })
    const isMarked = ({ parts }: Message) => parts.some(({ native }) => native?.value['cache_control'] !== undefined)
    expect(marked?.prompt.messages.map(isMarked)).toEqual([true, true, false, false, false])
  })
})

it('the markers of an explanation are chosen by what a store that is a class contains, and nothing is written to it', async () => {
  class ClassStore {
    readonly #values = new Map<string, string>()
    writes = 0
    get(key: string): string | undefined {
      return this.#values.get(key)
    }
    async set(key: string, value: string): Promise<void> {
      this.writes += 1
      this.#values.set(key, value)
    }
  }
  const store = new ClassStore()
  const runtime = manualRuntime(noNetwork, { now: START + 1000 })
  const first = [user(prose(1, 6000))]
  const requestOf = (messages: readonly Message[], now: number) => {
    const prompt = promptOf(messages)
    return { prompt, model: CACHED, tokens: meter.estimatePrompt(prompt), owner: 'k', now }
  }
  await markForCache(createMemory({ store, now: () => START }), requestOf(first, START))
  expect(store.writes).toBe(1)

  const next = [...first, assistant('Yes.'), user('And?'), assistant('No.'), user('Why?')]
  const { markPrompt } = createDryRun({}, { store, meter, runtime })
  const marked = await markPrompt?.(requestOf(next, START + 1000))

  expect(marked?.markerCount).toBeGreaterThan(0)
  expect(store.writes).toBe(1)
})
