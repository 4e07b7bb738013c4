import { describe, expect, it } from 'vitest'
import type { Message } from '../../../src/core/prompt.ts'
import { asksForEverything } from '../../../src/plugins/savings/selection-tiers.ts'
import { jobOf, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

describe('a question that needs each mention of a subject', () => {
  it.each([
    ['Can you summarize what we did about the invoices?', true],
    ['Give me an overview of my garden.', true],
    ['How many different vendors did I name?', true],
    ['In what order did I bring up the repairs?', true],
    ['What were all the dates that I mentioned?', true],
    ['How did my plan change over time?', true],
    ['Fass bitte unser Gespräch zusammen.', true],
    ['请总结我们的讨论。', true],
    ['When is the first deadline?', false],
    ['How many tomatoes do I need?', false],
    ['Order new seeds for me.', false],
    ['Which color did I choose for the wall?', false],
    [`Summarize this. ${'A pasted document. '.repeat(100)}`, false],
  ])('is recognized: %s', (question, expected) => {
    expect(asksForEverything({ messages: [user('Hello.'), assistant('Hello.'), user(question)] })).toBe(expected)
  })

  it('is not recognized after the live turn has gone on', () => {
    expect(asksForEverything({ messages: [user('Summarize everything.'), assistant('Reading.')] })).toBe(false)
  })
})

const SUBJECT = 'the harbour, ledger, invoice, compiler, orchard, glacier, reservoir, telescope and passport'

async function sizeOf(question: string, vanishing?: { readonly minTargetTokens: number }): Promise<number> {
  const past = Array.from({ length: 240 }, (_, at) => [user(prose(at, 20)), assistant(prose(at + 5000, 180))])
  const prompt = promptOf([...past.flat(), user(question)], 'chat')
  const waterfall = waterfallOf(vanishing === undefined ? {} : { vanishing })
  const { rewrite } = await waterfall(jobOf(prompt, { steering: { vanishing: true, recursive: false } }))
  expect(rewrite?.tier).toBe(2)
  return rewrite?.tokens ?? 0
}

describe('tier 2', () => {
  it('sends up to three times as much for a question that needs each mention', async () => {
    const one = await sizeOf(`What of ${SUBJECT}?`)
    const all = await sizeOf(`Summarize everything about ${SUBJECT}.`)

    expect(one).toBeLessThanOrEqual(16_384)
    expect(all).toBeGreaterThan(46_000)
    expect(all).toBeLessThanOrEqual(49_152)
  })

  it('triples a configured size as well', async () => {
    const size = await sizeOf(`Summarize everything about ${SUBJECT}.`, { minTargetTokens: 4096 })

    expect(size).toBeGreaterThan(11_500)
    expect(size).toBeLessThanOrEqual(12_288)
  })
})

describe('the slider', () => {
  it('never exceeds its cap, whatever the question needs', async () => {
    const past = Array.from({ length: 240 }, (_, at) => [user(prose(at, 20)), assistant(prose(at + 5000, 180))])
    const prompt = promptOf([...past.flat(), user(`Summarize everything about ${SUBJECT}.`)], 'chat')
    const steering = { level: 'extreme', vanishing: false, recursive: false } as const
    const { rewrite } = await waterfallOf({})(jobOf(prompt, { steering }))

    expect(rewrite?.tokens).toBeLessThanOrEqual(16_384)
  })
})
