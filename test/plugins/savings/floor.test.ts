import { describe, expect, it } from 'vitest'
import type { Message, Prompt } from '../../../src/core/prompt.ts'
import {
  type ConversationKind,
  keptShare,
  kindOf,
  type SelectionMethod,
  sizeToKeep,
} from '../../../src/plugins/savings/floor.ts'
import type { Tier } from '../../../src/plugins/savings/tier.ts'
import { DEFAULT_KEEP } from '../../../src/plugins/savings/waterfall.ts'
import { fc } from '../../support/properties.ts'
import { jobOf, meter, smallModel, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const { small } = smallModel((words) => `Facts and values: ${words.slice(100, 400)}`)

/** Returns a chat with about 300 tokens per pair of messages, without tools. */
function chat(pairs: number): Prompt {
  const past = Array.from({ length: pairs }, (_, at): Message[] => [
    { role: 'user', parts: [text(`Question ${at}: ${prose(at, 20)}`)] },
    { role: 'assistant', parts: [text(prose(at + 5000, 90))] },
  ])
  const messages: Message[] = [...past.flat(), { role: 'user', parts: [text(`And the ${prose(7, 6)}?`)] }]
  return { ...promptOf(messages, 'chat'), tools: [] }
}

const { tools } = promptOf([], 'chat')
const onlyTier = (number: number) => (own: readonly Tier[]) => own.filter(({ tier }) => tier === number)

const sending = fc.record({
  method: fc.constantFrom<SelectionMethod>('by-question', 'running'),
  kind: fc.constantFrom<ConversationKind>('request', 'chat', 'agent'),
  received: fc.integer({ min: 1000, max: 1_000_000 }),
})
const share = fc.integer({ min: 0, max: 1000 }).map((thousandths) => thousandths / 1000)

describe('the curves', () => {
  it('keep nothing in an empty prompt and everything in the received one', () => {
    fc.assert(
      fc.property(sending, (one) => {
        expect(keptShare(one, 0)).toBe(0)
        expect(keptShare(one, one.received)).toBe(1)
        expect(sizeToKeep(one, 0)).toBe(0)
        expect(sizeToKeep(one, 1)).toBe(one.received)
      }),
    )
  })

  it('keep at least the share that a size was chosen for', () => {
    fc.assert(
      fc.property(sending, share, (one, keep) => {
        expect(keptShare(one, sizeToKeep(one, keep))).toBeGreaterThanOrEqual(keep - 1e-9)
      }),
    )
  })

  it('require no smaller size for a larger share', () => {
    fc.assert(
      fc.property(sending, share, share, (one, a, b) => {
        expect(sizeToKeep(one, Math.max(a, b))).toBeGreaterThanOrEqual(sizeToKeep(one, Math.min(a, b)))
      }),
    )
  })

  it('belong to the kind of the conversation', () => {
    expect(kindOf(chat(2))).toBe('request')
    expect(kindOf(chat(3))).toBe('chat')
    expect(kindOf({ ...chat(3), tools })).toBe('agent')
  })
})

describe('savings.keep', () => {
  it('is 0.97 by default', async () => {
    const waterfall = waterfallOf({ keep: DEFAULT_KEEP, tiers: onlyTier(4) })
    const { rewrite, verdicts } = await waterfall(jobOf(chat(100), { small }))
    expect(rewrite).toBeUndefined()
    expect(verdicts).toEqual([{ tier: 4, outcome: 'below-floor', reason: expect.stringContaining('97.0%') }])
  })

  it('declines with the share and the size that a tier could reach', async () => {
    const { verdicts, spent } = await waterfallOf({ keep: 0.999 })(jobOf(chat(250), { small }))
    expect(spent).toBe(0)
    for (const { tier, outcome, reason } of verdicts.filter((verdict) => verdict.tier === 2 || verdict.tier === 4)) {
      expect([tier, outcome]).toEqual([tier, 'below-floor'])
      expect(reason).toMatch(/^keeps less than savings\.keep \(99\.9%\): about \d+\.\d% of the evidence in \d+ tokens$/)
    }
  })

  it.each([2, 3, 4])('makes tier %d send more for a larger share', async (number) => {
    const prompt = chat(400)
    const sizes: number[] = []
    for (const keep of [0, 0.75, 0.85]) {
      const { rewrite } = await waterfallOf({ keep, tiers: onlyTier(number) })(jobOf(prompt, { small }))
      sizes.push(rewrite?.tokens ?? 0)
    }
    const method = number === 4 ? 'running' : 'by-question'
    const received = await meter.countPrompt(prompt)
    expect(sizes).toEqual(sizes.toSorted((a, b) => a - b))
    // The selection leaves a little of the size unused.
    expect(sizes[1]).toBeGreaterThan(0.85 * sizeToKeep({ method, kind: 'chat', received }, 0.75))
    expect(sizes[2]).toBeLessThan(received)
  })

  it('does not bind headers', async () => {
    const waterfall = waterfallOf({ keep: 1 })
    const prompt = chat(250)
    const level = { level: 'extreme', vanishing: false, recursive: false } as const
    const vanishing = { vanishing: true, recursive: false }
    const recursive = { vanishing: false, recursive: true }
    for (const [steering, tier] of [
      [level, 5],
      [vanishing, 2],
      [recursive, 3],
    ] as const) {
      expect((await waterfall(jobOf(prompt, { steering, small }))).rewrite?.tier).toBe(tier)
    }
  })

  it('does not bind a size that the operator chose', async () => {
    const waterfall = waterfallOf({ keep: 1, vanishing: { minTargetTokens: 4096 } })
    const { rewrite } = await waterfall(jobOf(chat(250), { small }))
    expect(rewrite?.tier).toBe(2)
    expect(rewrite?.tokens).toBeLessThanOrEqual(4096)
  })

  it('does not bind a custom tier', async () => {
    const halving: Tier = {
      tier: 4,
      wants: () => true,
      rewrite: async ({ prompt, tokens }) => {
        const messages = prompt.messages.slice(prompt.messages.length / 2)
        const rewrite = { prompt: { ...prompt, messages }, tokens: tokens / 2, tier: 4, strategy: 'Halved' } as const
        return { rewrite, spent: small.price(0, 0) }
      },
    }
    const { rewrite } = await waterfallOf({ keep: 1, tiers: [halving] })(jobOf(chat(100)))
    expect(rewrite?.strategy).toBe('Halved')
  })
})
