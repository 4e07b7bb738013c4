import { describe, expect, it } from 'vitest'
import type { Message } from '../../../src/core/prompt.ts'
import { jobOf, meter, smallModel, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const RECURSIVE = { vanishing: false, recursive: true }

/** Returns a chat with answers of about 500 tokens that share words with the question. */
function chat(pairs: number): Message[] {
  const past = Array.from({ length: pairs }, (_, at): Message[] => [
    { role: 'user', parts: [text(`Question ${at}: ${prose(at, 20)}`)] },
    { role: 'assistant', parts: [text(prose(at + 5000, 180))] },
  ])
  return [
    ...past.flat(),
    { role: 'user', parts: [text('What of the harbour, the ledger, the orchard and the violin?')] },
  ]
}

async function chatOf(tokens: number): Promise<ReturnType<typeof promptOf>> {
  const sizes = await Promise.all([20, 40].map((pairs) => meter.countPrompt(promptOf(chat(pairs), 'chat'))))
  const perPair = ((sizes[1] ?? 0) - (sizes[0] ?? 0)) / 20
  return promptOf(chat(Math.ceil(tokens / perPair)), 'chat')
}

describe('tier 3', () => {
  it.each([25_000, 38_000, 60_000])('at least halves a prompt of %i tokens', async (tokens) => {
    // The summaries have the maximum length.
    const { small } = smallModel((words) => `Facts and values: ${words.slice(200, 2400)}`)
    const prompt = await chatOf(tokens)
    const { rewrite, tokens: original } = await waterfallOf()(jobOf(prompt, { small, steering: RECURSIVE }))
    expect(rewrite?.tier).toBe(3)
    expect(1 - (rewrite?.tokens ?? original) / original).toBeGreaterThanOrEqual(0.5)
  })
})
