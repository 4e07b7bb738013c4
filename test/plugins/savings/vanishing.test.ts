import { describe, expect, it } from 'vitest'
import type { Message } from '../../../src/core/prompt.ts'
import type { TierJob } from '../../../src/plugins/savings/tier.ts'
import type { WaterfallOptions } from '../../../src/plugins/savings/waterfall.ts'
import { jobOf, meter, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const ORDERED = { vanishing: true, recursive: false } as const
const QUESTION = 'What of the harbour, ledger, invoice, compiler, orchard, glacier, reservoir, telescope and passport?'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

/** Returns a chat of `exchanges` exchanges of about 270 tokens each and a question. */
function chat(exchanges: number): TierJob['prompt'] {
  const past = Array.from({ length: exchanges }, (_, at) => [user(prose(at, 20)), assistant(prose(at + 5000, 180))])
  return promptOf([...past.flat(), user(QUESTION)], 'chat')
}

/** Returns a first question about documents of about 3,800 tokens each. */
function request(documents: number): TierJob['prompt'] {
  return promptOf([...Array.from({ length: documents }, (_, at) => user(prose(at, 2500))), user(QUESTION)], 'chat')
}

/** Returns the size of the prompt that tier 2 creates, or undefined if tier 2 does not run. */
async function sizeOf(
  prompt: TierJob['prompt'],
  steering?: TierJob['steering'],
  vanishing?: WaterfallOptions['vanishing'],
): Promise<number | undefined> {
  const tiers: WaterfallOptions['tiers'] = (own) => own.filter(({ tier }) => tier === 2)
  const waterfall = waterfallOf({ tiers, ...(vanishing !== undefined && { vanishing }) })
  const { rewrite } = await waterfall(jobOf(prompt, steering === undefined ? {} : { steering }))
  return rewrite?.tokens
}

describe('the size of the prompt of tier 2', () => {
  it('is 4,096 tokens for a requested context of up to 40,000', async () => {
    const prompt = chat(100)
    expect(await meter.countPrompt(prompt)).toBeLessThan(40_000)
    const size = await sizeOf(prompt, ORDERED)
    expect(size).toBeGreaterThan(3500)
    expect(size).toBeLessThanOrEqual(4096)
  })

  it('is 16,384 tokens for a requested context above 40,000', async () => {
    const prompt = chat(160)
    expect(await meter.countPrompt(prompt)).toBeGreaterThan(40_000)
    const size = await sizeOf(prompt, ORDERED)
    expect(size).toBeGreaterThan(15_500)
    expect(size).toBeLessThanOrEqual(16_384)
  })

  it('is 16,384 tokens for one long request without a header', async () => {
    const prompt = request(20)
    expect(await meter.countPrompt(prompt)).toBeGreaterThan(50_000)
    const size = await sizeOf(prompt)
    expect(size).toBeGreaterThan(12_000)
    expect(size).toBeLessThanOrEqual(16_384)
  })

  it('is 4,096 tokens for a long conversation without a header', async () => {
    const prompt = chat(240)
    expect(await meter.countPrompt(prompt)).toBeGreaterThan(50_000)
    const size = await sizeOf(prompt)
    expect(size).toBeGreaterThan(3500)
    expect(size).toBeLessThanOrEqual(4096)
  })

  it('follows the configured sizes', async () => {
    const minTarget = [
      { aboveTokens: 0, targetTokens: 2000 },
      { aboveTokens: 30_000, targetTokens: 8000 },
    ]
    const prompt = chat(160)
    const sizes = [
      await sizeOf(prompt, ORDERED, { minTargetTokens: minTarget }),
      await sizeOf(prompt, ORDERED, { minTargetTokens: 2000 }),
    ]
    expect(sizes[0]).toBeGreaterThan(7500)
    expect(sizes[0]).toBeLessThanOrEqual(8000)
    expect(sizes[1]).toBeGreaterThan(1500)
    expect(sizes[1]).toBeLessThanOrEqual(2000)
  })
})
