import { describe, expect, it } from 'vitest'
import type { Message, Prompt } from '../../../src/core/prompt.ts'
import type { Model } from '../../../src/core/ports.ts'
import { textOfMessage } from '../../../src/core/messages.ts'
import { readSteeringHeaders, type Steering } from '../../../src/plugins/savings/tier.ts'
import type { SliderMode } from '../../../src/plugins/savings/selection-tiers.ts'
import { jobOf, meter, MODEL, smallModel, textStore, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'
import { everyNth } from '../../support/full.ts'

const EVERYTHING = 'Passthrough (sending everything is cheaper)'
const START = 1e12
/** Of `prose`. */
const TOKENS_PER_WORD = 1.85
const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

interface Table {
  readonly name: string
  readonly read: number
  readonly write: number
}

const TABLES: readonly Table[] = [
  { name: 'read 0.1, write 1.25', read: 0.1, write: 1.25 },
  { name: 'read 0.25, write 1', read: 0.25, write: 1 },
  { name: 'read 0.1, write 2', read: 0.1, write: 2 },
  { name: 'no cache', read: 1, write: 1 },
]

function modelOf({ read, write }: Table): Model {
  const { input } = MODEL.price
  return read < 1 ? { ...MODEL, price: { ...MODEL.price, cacheRead: input * read, cacheWrite: input * write } } : MODEL
}

/** Returns `turns` prompts of one chat. The first has about `first` tokens, and each next one about `added` more. */
function chat(first: number, added: number, turns: number): readonly Prompt[] {
  const pair = (seed: number, tokens: number): readonly Message[] => [
    user(`Question ${seed}: ${prose(seed, 20)}`),
    assistant(prose(seed + 5000, Math.round(tokens / TOKENS_PER_WORD))),
  ]
  const messages: Message[] = Array.from({ length: Math.ceil(first / 600) }, (_, at) => pair(at, 550)).flat()
  return Array.from({ length: turns }, (_, turn) => {
    const prompt = { ...promptOf([...messages, user(`And the ${prose(turn, 6)}?`)], 'chat'), tools: [] }
    messages.push(
      user(`And the ${prose(turn, 6)}?`),
      assistant(prose(turn + 9000, Math.round(added / TOKENS_PER_WORD))),
    )
    return prompt
  })
}

/** A vendor that caches every prefix until five minutes after its last use. */
function createVendor({ read, write }: Table) {
  let known: { readonly texts: readonly string[]; readonly at: number }[] = []
  return async (prompt: Prompt, now: number): Promise<number> => {
    const texts = prompt.messages.map(textOfMessage)
    known = known.filter(({ at }) => now - at <= 300_000)
    const shared = (other: readonly string[]): number => {
      const differs = other.findIndex((one, at) => one !== texts[at])
      return differs === -1 ? other.length : differs
    }
    const same = Math.max(0, ...known.map((one) => shared(one.texts)))
    known.push({ texts, at: now })
    let cost = 0
    for (const [at, message] of prompt.messages.entries())
      cost += (await meter.countMessage(message)) * (at < same ? read : write)
    return cost
  }
}

interface Played {
  readonly paid: number
  readonly plain: number
  /** The largest excess of any beginning of the conversation, in percent. */
  readonly maxExcess: number
  readonly strategies: readonly string[]
  readonly sent: readonly Prompt[]
}

interface PlayOptions {
  readonly steering: Steering
  readonly table: Table
  readonly slider?: SliderMode
  /** A pause of ten minutes follows each time after this number of turns. */
  readonly pauseAfter?: number
  /** A pause of ten minutes precedes this turn. */
  readonly pauseBefore?: number
}

async function play(
  prompts: readonly Prompt[],
  {
    steering,
    table,
    slider = 'auto',
    pauseAfter = Number.POSITIVE_INFINITY,
    pauseBefore = Number.POSITIVE_INFINITY,
  }: PlayOptions,
): Promise<Played> {
  const waterfall = waterfallOf({ store: textStore().store, slider, agents: false })
  const sentCost = createVendor(table)
  const plainCost = createVendor(table)
  const strategies: string[] = []
  const sent: Prompt[] = []
  let paid = 0
  let plain = 0
  let maxExcess = 0
  for (const [turn, prompt] of prompts.entries()) {
    const pauses = Math.floor(turn / pauseAfter) + (turn >= pauseBefore ? 1 : 0)
    const now = START + turn * 30_000 + pauses * 600_000
    const { rewrite, strategy } = await waterfall(jobOf(prompt, { steering, model: modelOf(table), now }))
    strategies.push(rewrite?.strategy ?? strategy ?? 'Passthrough (no optimization needed)')
    sent.push(rewrite?.prompt ?? prompt)
    paid += await sentCost(rewrite?.prompt ?? prompt, now)
    plain += await plainCost(prompt, now)
    maxExcess = Math.max(maxExcess, (100 * paid) / plain - 100)
  }
  return { paid, plain, maxExcess, strategies, sent }
}

const level = (name: 'extreme' | 'max' | 'med' | 'min'): Steering => ({
  level: name,
  vanishing: false,
  recursive: false,
})
const VANISHING: Steering = { vanishing: true, recursive: false }

describe('a conversation with a level or header', () => {
  const GROWING = chat(12_000, 1500, 16)
  const LONG = chat(20_000, 1200, 14)
  const VERY_LONG = chat(60_000, 200, 12)

  describe.each(everyNth(2, TABLES))('at a vendor with $name', (table) => {
    it.each([
      ['extreme', level('extreme'), 'auto'],
      ['extreme, selected on each turn', level('extreme'), 'query'],
      ['vanishing context', VANISHING, 'auto'],
    ] as const)('never costs more than sending everything: %s', async (_, steering, slider) => {
      for (const prompts of [GROWING, LONG]) {
        const { maxExcess } = await play(prompts, { steering, table, slider })
        expect(maxExcess).toBeLessThan(0.5)
      }
    })

    it.each([Number.POSITIVE_INFINITY, 1, 2, 4])('never costs more if it pauses after %d turns', async (pauseAfter) => {
      const { maxExcess } = await play(VERY_LONG, { steering: level('extreme'), table, pauseAfter })
      expect(maxExcess).toBeLessThan(0.5)
    })
  })
})

const [CACHED = { name: '', read: 1, write: 1 }] = TABLES

describe('the first request of a conversation', () => {
  it.each([
    ['extreme', 89],
    ['max', 78],
    ['med', 56],
    ['min', 12],
  ] as const)('is shortened to the cap of %s, by %d percent', async (name, percent) => {
    const [prompt] = chat(148_945, 0, 1)
    if (prompt === undefined) throw new Error('The chat is empty.')
    const waterfall = waterfallOf({ agents: false })
    const job = jobOf(prompt, { steering: level(name), model: modelOf(CACHED) })
    const { rewrite, tokens } = await waterfall(job)
    // The reductions of the requirement are those of a prompt of 148,945 tokens.
    const cap = rewrite?.tokens ?? tokens
    expect(Math.abs(100 * (1 - cap / 148_945) - percent)).toBeLessThanOrEqual(1)
  })
})

describe('a level that costs more than sending everything', () => {
  const prompts = chat(12_000, 5000, 3)

  it('sends everything and says so', async () => {
    const { strategies } = await play(prompts, { steering: level('extreme'), table: CACHED })
    expect(strategies).toEqual(['Passthrough (no optimization needed)', EVERYTHING, EVERYTHING])
  })

  it('is followed with X-Svc-Force', async () => {
    const steering = { ...level('extreme'), force: true }
    const { strategies } = await play(prompts, { steering, table: CACHED })
    expect(strategies.slice(1)).toEqual(Array(2).fill('Savings-Slider (extreme: 16384 tokens)'))
  })

  it('is followed for a conversation that this gateway has not sent', async () => {
    const { strategies } = await play(prompts.slice(1, 2), { steering: level('extreme'), table: CACHED })
    expect(strategies).toEqual(['Savings-Slider (extreme: 16384 tokens)'])
  })

  it('reports the reason', async () => {
    const waterfall = waterfallOf({ agents: false })
    let reason: string | undefined
    for (const [turn, prompt] of prompts.entries()) {
      const now = START + turn * 30_000
      const job = jobOf(prompt, { steering: level('extreme'), model: modelOf(CACHED), now })
      reason = (await waterfall(job)).verdicts.find(({ tier }) => tier === 5)?.reason
    }
    expect(reason).toBe('sending everything is cheaper')
  })
})

describe('a level that costs more on each turn than reading everything from the cache', () => {
  const TURNS = 12
  const codeOf = (at: number): string => `code${at * 7919}`
  const about = (at: number): string => `zebra${at * 31} quartz${at * 17}`
  /** The question of turn `t` needs the response to the pair `at(t)`. */
  const at = (turn: number): number => (turn * 37 + 5) % 100
  const question = (turn: number): Message => user(`Which code has ${about(at(turn))}?`)
  const old = Array.from({ length: 100 }, (_, pair) => [
    user(`Tell me about ${about(pair)}, ${prose(pair, 15)}.`),
    assistant(`${about(pair)} has ${codeOf(pair)}. ${prose(pair + 700, 320)}`),
  ]).flat()
  const prompts = Array.from({ length: TURNS }, (_, turn) => {
    const asked = Array.from({ length: turn }, (__, past) => [question(past), assistant('I have found it.')]).flat()
    return { ...promptOf([...old, ...asked, question(turn)], 'chat'), tools: [] }
  })
  const sharePresent = (sent: readonly Prompt[]): number =>
    sent.filter(({ messages }, turn) => messages.some((one) => textOfMessage(one).includes(codeOf(at(turn))))).length /
    TURNS
  const play12 = () => play(prompts, { steering: level('extreme'), table: CACHED })

  it('keeps what the questions need, and never costs more', async () => {
    const { sent, maxExcess } = await play12()
    expect(sharePresent(sent)).toBe(1)
    expect(maxExcess).toBeLessThan(0.5)
  })

  it('sends small selections until it has saved the cost of sending everything again', async () => {
    const { strategies } = await play12()
    const [first, ...later] = strategies
    const small = later.filter((one) => one !== EVERYTHING)
    expect(first).toBe('Savings-Slider (extreme: 16384 tokens)')
    expect(small.length).toBeGreaterThan(0)
    expect(small.length).toBeLessThan(6)
    for (const one of small) expect(one).toMatch(/^Savings-Slider \(extreme: [1-9]\d{2,3} tokens\)$/)
    expect(later.slice(small.length)).toEqual(Array(TURNS - 1 - small.length).fill(EVERYTHING))
  })

  it('does not repeat the last shortened prompt after a return', async () => {
    const { strategies } = await play(prompts, { steering: level('extreme'), table: CACHED, pauseBefore: 1 })
    const returned = strategies.indexOf(EVERYTHING)
    expect(strategies[returned - 1]).toBe('Savings-Slider (extreme: 16384 tokens)')
    expect(new Set(strategies.slice(returned))).toEqual(new Set([EVERYTHING]))
  })

  it('is followed while a conversation of few turns has saved enough', async () => {
    const documents = Array.from({ length: 100 }, (_, page) => user(`Page ${page}. ${prose(page + 700, 320)}`))
    const few = Array.from({ length: 4 }, (_, turn) => {
      const asked = Array.from({ length: turn }, () => [assistant('A lot.'), user('What else?')]).flat()
      return { ...promptOf([...documents, user('What do they say?'), ...asked], 'chat'), tools: [] }
    })
    const { strategies } = await play(few, { steering: level('extreme'), table: CACHED })
    expect(strategies).not.toContain(EVERYTHING)
  })
})

describe('X-Svc-Force', () => {
  const request = (value: string) => ({ header: (name: string) => (name === 'x-svc-force' ? value : undefined) })

  it('is read like the other steering headers', () => {
    expect(readSteeringHeaders(request('true')).force).toBe(true)
    expect(readSteeringHeaders(request('0')).force).toBeUndefined()
    expect(() => readSteeringHeaders(request('perhaps'))).toThrow('X-Svc-Force is "perhaps"')
  })
})

describe('vanishing context that finds nothing', () => {
  it('sends the beginning and the end of the conversation, at the same size', async () => {
    const [prompt] = chat(30_000, 0, 1)
    if (prompt === undefined) throw new Error('The chat is empty.')
    const messages = [...prompt.messages.slice(0, -1), user('Xyzzy plugh?')]
    const { rewrite } = await waterfallOf()(jobOf({ ...prompt, messages }, { steering: VANISHING }))
    expect(rewrite?.strategy).toMatch(/^Vanishing-Context \(\d+ of \d+ sections\)$/)
    expect(rewrite?.tokens).toBeLessThanOrEqual(4096)
  })
})

describe('a small model that fails', () => {
  it.each([
    ['tier 2', VANISHING],
    ['tier 3', { vanishing: false, recursive: true }],
    ['tier 4', { vanishing: false, recursive: false }],
  ] as const)('is called once per conversation and pause by %s', async (_, steering) => {
    const { small, modelCalls } = smallModel(() => {
      throw new Error('The model is overloaded.')
    })
    const waterfall = waterfallOf({ store: textStore().store })
    for (const [turn, prompt] of chat(45_000, 500, 3).entries()) {
      await waterfall(jobOf(prompt, { steering, small, now: START + turn * 30_000 }))
    }
    expect(modelCalls).toHaveLength(1)
  })
})
