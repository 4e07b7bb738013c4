import { describe, expect, it } from 'vitest'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { Message, Prompt } from '../../../src/core/prompt.ts'
import type { TierJob } from '../../../src/plugins/savings/tier.ts'
import { createWaterfall, type WaterfallOptions } from '../../../src/plugins/savings/waterfall.ts'
import { yieldToEventLoop } from '../../../src/tokens/event-loop.ts'
import { PromptMeter, createTokenizer } from '../../../src/tokens/meter.ts'
import { jobOf, MODEL, textStore } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const CACHED = { ...MODEL, price: { ...MODEL.price, cacheRead: 0.3, cacheWrite: 3.75 } }
const MAX_TOKENS = 200_000
const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

/** A chat without tools, of about 330 tokens per turn. */
function chat(turns: number, name = 'a'): Prompt {
  const messages = Array.from({ length: turns }, (_, turn) => [
    user(`${name}, question ${turn}: ${prose(turn, 40)}`),
    assistant(prose(turn + 5000, 180)),
  ]).flat()
  return { ...promptOf([...messages, user('And the harbour?')], 'chat'), tools: [] }
}

const grown = (prompt: Prompt, messages: readonly Message[]): Prompt => ({
  ...prompt,
  messages: [...prompt.messages, ...messages],
})

function setup(options: Partial<WaterfallOptions> = {}) {
  const counted: string[] = []
  const reads: string[] = []
  const { store, entries } = textStore()
  const tokenizer = createTokenizer()
  const meter = new PromptMeter({
    ...tokenizer,
    estimate: (words) => {
      counted.push(words)
      return tokenizer.estimate(words)
    },
  })
  const countedStore: WaterfallOptions['store'] = {
    ...store,
    get: (key) => {
      reads.push(key)
      return store.get(key)
    },
  }
  const waterfall = createWaterfall({
    meter,
    store: countedStore,
    now: () => 1e12,
    after: () => () => undefined,
    yieldToEventLoop,
    ...options,
  })
  return { waterfall, counted, reads, entries }
}

const sizeOf = (prompt: Prompt): number => new PromptMeter(createTokenizer()).estimatePrompt(prompt)

const request = (prompt: Prompt, more: Partial<TierJob> = {}): TierJob =>
  jobOf(prompt, { model: CACHED, now: 1e12, ...more })

describe('a prompt that no tier can rewrite', () => {
  it('is recognized without being counted, with the default options', async () => {
    const { waterfall, counted } = setup()
    const passed = await waterfall.passUnchanged(request(chat(200)), MAX_TOKENS)

    expect(passed?.verdicts.map(({ tier, outcome }) => [tier, outcome])).toEqual([
      [5, 'not-wanted'],
      [2, 'below-floor'],
      [3, 'below-floor'],
      [4, 'below-floor'],
    ])
    expect(counted).toEqual([])
  })

  it.each<[string, Partial<WaterfallOptions>, Prompt]>([
    ['has tools', { keep: 0 }, { ...chat(200), tools: promptOf([], 'chat').tools }],
    [
      'has a marker of the caller',
      { keep: 0, agents: true },
      { ...chat(200), native: { dialect: 'messages', value: { cache_control: { type: 'ephemeral' } } } },
    ],
  ])('is recognized if it %s, whatever the tiers keep', async (_, options, prompt) => {
    const passed = await setup(options).waterfall.passUnchanged(request(prompt), MAX_TOKENS)

    expect(passed?.verdicts.filter(({ outcome }) => outcome === 'declined').map(({ tier }) => tier)).toEqual([2, 3, 4])
  })

  it.each<[string, Partial<WaterfallOptions>, Partial<TierJob>]>([
    ['a tier keeps enough', { keep: 0.9 }, {}],
    ['nothing must be kept', { keep: 0 }, {}],
    ['a header requests a tier', {}, { steering: { level: 'extreme', vanishing: false, recursive: false } }],
    ['tiers of the operator may rewrite it', { tiers: (builtIn) => builtIn }, {}],
    ['the verdicts must be explained', { explains: true }, {}],
  ])('is counted if %s', async (_, options, more) => {
    expect(await setup(options).waterfall.passUnchanged(request(chat(200), more), MAX_TOKENS)).toBeUndefined()
  })

  it('is not recorded if it has few bytes', async () => {
    const { waterfall, reads, entries } = setup()
    const passed = await waterfall.passUnchanged(request(chat(5)), 20_000)
    await passed?.reportSent?.({ promptTokens: 5000, usage: undefined })

    expect(passed?.verdicts).toHaveLength(4)
    expect([reads, [...entries]]).toEqual([[], []])
  })
})

describe('the record of what was sent', () => {
  const send = async (
    waterfall: ReturnType<typeof setup>['waterfall'],
    prompt: Prompt,
    tokens: number,
    more: Partial<TierJob> = {},
  ): Promise<number | undefined> => {
    const passed = await waterfall.passUnchanged(request(prompt, more), MAX_TOKENS)
    await passed?.reportSent?.({ promptTokens: tokens, usage: { ...NO_USAGE, inputTokens: tokens } })
    return passed?.expectedCacheRead?.()
  }

  it('expects the prompt of the last turn in the vendor cache, and counts it only then', async () => {
    const { waterfall, counted } = setup()
    const first = chat(200)

    expect(await send(waterfall, first, 66_000)).toBe(0)
    expect(counted).toEqual([])
    expect(await send(waterfall, grown(first, [assistant('Closed.'), user('Why?')]), 66_100)).toBe(sizeOf(first))
  })

  it.each([1, 3, 30, 400])('finds the last turn with three reads if a turn adds %i messages', async (added) => {
    const { waterfall, reads } = setup()
    const first = chat(100)
    await send(waterfall, first, 33_000)
    reads.length = 0
    const steps = Array.from({ length: added }, (_, step) => assistant(`Step ${step}: ${prose(step, 10)}`))

    expect(await send(waterfall, grown(first, steps), 40_000)).toBe(sizeOf(first))
    expect(new Set(reads).size).toBeLessThanOrEqual(3)
  })

  it('keeps eight conversations that begin alike apart', async () => {
    const { waterfall } = setup()
    const shared = chat(100)
    const branches = Array.from({ length: 8 }, (_, at) =>
      grown(shared, [assistant('Closed.'), user(`Branch ${at}? ${prose(at, 10 * at)}`)]),
    )
    for (const branch of branches) await send(waterfall, branch, 34_000)

    for (const branch of branches) {
      expect(await send(waterfall, grown(branch, [assistant('Yes.'), user('More?')]), 35_000)).toBe(sizeOf(branch))
    }
  })

  it.each<[string, (prompt: Prompt) => Prompt, Partial<TierJob>]>([
    ['another key', (prompt) => prompt, { owner: 'someone else' }],
    ['another model', (prompt) => prompt, { model: { ...CACHED, id: 'other' } }],
    ['other tools', (prompt) => ({ ...prompt, tools: promptOf([], 'chat').tools }), {}],
    ['a changed first message', (prompt) => ({ ...prompt, messages: [user('Hm?'), ...prompt.messages.slice(1)] }), {}],
    ['a later time', (prompt) => prompt, { now: 1e12 + 6 * 60_000 }],
  ])('expects nothing for %s', async (_, change, more) => {
    const { waterfall } = setup()
    const first = chat(200)
    await send(waterfall, first, 66_000)

    expect(await send(waterfall, change(grown(first, [assistant('Closed.'), user('Why?')])), 66_100, more)).toBe(0)
  })

  it('expects less after the vendor has read less than expected', async () => {
    const { waterfall } = setup()
    let prompt = chat(200)
    await send(waterfall, prompt, 66_000)
    for (let turn = 0; turn < 3; turn++) await send(waterfall, (prompt = grown(prompt, [user(`Turn ${turn}`)])), 66_000)

    expect(await send(waterfall, grown(prompt, [user('Last?')]), 66_000)).toBeLessThan(66_000 / 4)
  })
})
