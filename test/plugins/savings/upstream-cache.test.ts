import { describe, expect, it } from 'vitest'
import type { Message, Prompt } from '../../../src/core/prompt.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import { jobOf, MODEL, smallModel, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const CACHED = { ...MODEL, price: { ...MODEL.price, cacheRead: 0.3, cacheWrite: 3.75 } }
const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

const start = (): Prompt =>
  promptOf(
    [
      ...Array.from({ length: 34 }, (_, at) => [
        user(`Question ${at}: ${prose(at, 20)}`),
        assistant(prose(at + 5000, 180)),
      ]).flat(),
      user('And the harbour?'),
    ],
    'chat',
  )

const next = (prompt: Prompt, turn: number): Prompt => ({
  ...prompt,
  messages: [...prompt.messages, assistant(prose(turn + 900, 180)), user(`Turn ${turn}: ${prose(turn, 15)}?`)],
})

/** Returns the tier of each turn while the conversation grows past 20k tokens. The upstream reports its cache reads. */
async function tiersOf(reported: (warm: number) => number): Promise<readonly (number | undefined)[]> {
  const waterfall = waterfallOf()
  const { small } = smallModel('Facts and values: the harbour was closed in 1999.')
  const tiers: (number | undefined)[] = []
  let prompt = start()
  let warm = 0
  for (let turn = 0; turn < 24; turn++) {
    const job = jobOf(prompt, { model: CACHED, small })
    const { rewrite, tokens, reportSent } = await waterfall(job)
    tiers.push(rewrite?.tier)
    const usage = { ...NO_USAGE, inputTokens: tokens, cacheReadTokens: reported(warm) }
    await reportSent?.({ promptTokens: tokens, usage })
    warm = tokens
    prompt = next(prompt, turn)
  }
  return tiers
}

describe('a report of the upstream about its cache', () => {
  it('prevents rewriting while the prefix is read from the cache', async () => {
    expect(new Set(await tiersOf((warm) => warm))).toEqual(new Set([undefined]))
  })

  it('counts as fully read without the last block', async () => {
    expect(new Set(await tiersOf((warm) => warm * 0.95))).toEqual(new Set([undefined]))
  })

  it('allows tier 4 if nothing is read from the cache', async () => {
    expect(await tiersOf(() => 0)).toContain(4)
  })
})
