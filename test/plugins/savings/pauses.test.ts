import { afterEach, describe, expect, it, vi } from 'vitest'
import type { Message } from '../../../src/core/prompt.ts'
import { countTerms } from '../../../src/plugins/savings/term-counts.ts'
import { repeatCut } from '../../../src/plugins/savings/cut.ts'
import type { SegmentAnalysis, Snippet } from '../../../src/plugins/savings/excerpt.ts'
import { PromptMeter, createTokenizer } from '../../../src/tokens/meter.ts'
import { jobOf, meter, smallModel, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const QUESTION = 'What of the harbour, the ledger, the orchard, the violin and the glacier?'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

const shapes: readonly (readonly [string, readonly Message[]])[] = [
  ['a pasted document of 1 MB', [user(prose(1, 150_000)), assistant('Read.')]],
  [
    'a chat of 1 MB',
    Array.from({ length: 700 }, (_, at) => [user(prose(at, 40)), assistant(prose(at + 5000, 180))]).flat(),
  ],
]

afterEach(() => {
  vi.restoreAllMocks()
})

/**
 * The most characters that were estimated between two turns of the event loop. The clock is the work itself: it advances
 * by a millisecond per 10,000 characters, so that the outcome does not depend on the machine.
 */
async function longestStretch(messages: readonly Message[], steering: object): Promise<number> {
  let now = 0
  let stretch = 0
  let longest = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now)
  const { estimate, count } = createTokenizer()
  const counting = (words: string): number => {
    now += words.length / 10_000
    stretch += words.length
    longest = Math.max(longest, stretch)
    return estimate(words)
  }
  const countingMeter = new PromptMeter({ estimate: counting, count })
  let working = true
  const turn = (): void => {
    stretch = 0
    if (working) setImmediate(turn)
  }
  turn()
  const prompt = promptOf([...messages, user(QUESTION)], 'chat')
  const tokens = estimate(messages.map(({ parts }) => JSON.stringify(parts)).join(''))
  const { small } = smallModel('Facts and values: the harbour was closed in 1999.')
  const given = { steering: { vanishing: false, recursive: false, ...steering }, small, tokens }
  const { rewrite } = await waterfallOf({ meter: countingMeter })(jobOf(prompt, given))
  working = false
  expect(rewrite).toBeDefined()
  return longest
}

describe.each(shapes)('a tier yields to the event loop while it processes %s', (_, messages) => {
  it.each([
    ['tier 2', { vanishing: true }],
    ['tier 3', { recursive: true }],
    ['tier 5', { level: 'extreme' }],
  ])('%s', async (_tier, steering) => {
    expect(await longestStretch(messages, steering)).toBeLessThan(250_000)
  })
})

/** Returns the most Map entries that were written between two turns of the event loop while tier 5 ran. */
async function longestRunOfWrites(words: string): Promise<number> {
  const { set } = Map.prototype
  let now = 0
  let run = 0
  let longest = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now)
  function countWrite(this: Map<unknown, unknown>, key: unknown, value: unknown): Map<unknown, unknown> {
    now += 0.001
    run += 1
    longest = Math.max(longest, run)
    return set.call(this, key, value)
  }
  const prompt = promptOf([user('Begin.'), assistant(words), user('Go on.'), assistant('Yes.'), user(QUESTION)], 'chat')
  let working = true
  const turn = (): void => {
    run = 0
    if (working) setImmediate(turn)
  }
  const define = (value: unknown): void => void Object.defineProperty(Map.prototype, 'set', { value, writable: true })
  define(countWrite)
  try {
    turn()
    const steering = { vanishing: false, recursive: false, level: 'extreme' } as const
    const { rewrite } = await waterfallOf()(jobOf(prompt, { steering }))
    expect(rewrite).toBeDefined()
  } finally {
    define(set)
    working = false
  }
  return longest
}

it('tier 5 yields to the event loop while it ranks a text with 60,000 distinct words', async () => {
  const words = Array.from({ length: 60_000 }, (_, at) => `harbour${(at * 7919) % 1_000_003}x`)
  expect(await longestRunOfWrites(words.join(' '))).toBeLessThan(30_000)
})

it('a repeated cut reads only the snippets that it selects', async () => {
  const location = { message: 0, part: 0, piece: -1 }
  const all = Array.from({ length: 1000 }, (_, at): Snippet => {
    return { location, start: 10 * at, end: 10 * at + 10, tokens: 3, fingerprint: at }
  })
  let reads = 0
  const get = (target: readonly Snippet[], name: string | symbol): unknown => {
    if (/^\d+$/.test(String(name))) reads += 1
    return Reflect.get(target, name)
  }
  const analysis: SegmentAnalysis = {
    counts: countTerms([]),
    termSnippets: { offsets: new Int32Array(1), parts: new Int32Array() },
    snippets: new Proxy(all, { get }),
    skeletonTokens: 0,
    hasStandingInstruction: false,
  }
  const words = Array.from({ length: 1000 }, (_, at) => `number ${100 + (at % 900)}`.padEnd(10, '.'))
  const job = jobOf(promptOf([user('Begin.'), assistant(words.join('')), user(QUESTION)], 'chat'))
  const snapshot = { from: 3, picks: [[1, 5, 700]], notice: '', questionIndexAtCut: -1, blocks: [], at: 0 }
  const repeated = await repeatCut(job, snapshot, { meter, pause: () => undefined, analyze: async () => analysis })
  expect(JSON.stringify(repeated.prompt.messages)).toContain('number 800')
  expect(reads).toBe(2)
})
