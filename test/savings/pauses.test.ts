import { afterEach, describe, expect, it, vi } from 'vitest'
import type { Message } from '../../src/core/prompt.ts'
import { createMeter, createTokenizer } from '../../src/tokens/meter.ts'
import { jobOf, smallModel, waterfallOf } from './bench.ts'
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
  const meter = createMeter({ estimate: counting, count })
  let working = true
  const turn = (): void => {
    stretch = 0
    if (working) setImmediate(turn)
  }
  turn()
  const prompt = promptOf([...messages, user(QUESTION)], 'openai')
  const tokens = estimate(messages.map(({ parts }) => JSON.stringify(parts)).join(''))
  const { small } = smallModel('Facts and values: the harbour was closed in 1999.')
  const given = { steering: { vanishing: false, recursive: false, ...steering }, small, tokens }
  const { rewrite } = await waterfallOf({ meter })(jobOf(prompt, given))
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
